/* Loops over libfabric's tagged messages, with nothing in between: the limit for any layer above
 * it. The steps are those of ping_pong.h and windows.h. */
#include "fabric.h"

/* Half a round trip in microseconds. The receive is posted before the answer can arrive. */
static inline void ping_pong(struct peer *peer, long rounds)
{
    for (long round = 0; round < rounds; round++) {
        long sent = fabric.sent + 1, received = fabric.received + 1;
        fabric_receive(peer->receive, peer->bytes, MESSAGE, &peer->requests[0]);
        if (!peer->starts)
            fabric_wait(0, received);
        fabric_send(peer->send, peer->bytes, MESSAGE, &peer->requests[1]);
        fabric_wait(sent, received);
    }
}

static inline double one_way_time(const struct peer *peer, double seconds, long rounds)
{
    (void)peer;
    return seconds / (2.0 * (double)rounds) * 1e6;
}

static inline void start_sends(const struct peer *peer, peer_request *requests)
{
    size_t at = 0;
    for (int i = 0; i < peer->window; i++, at = peer_next(peer, at))
        fabric_send(peer->send + at, peer->bytes, MESSAGE, &requests[i]);
}

static inline void start_receives(const struct peer *peer, peer_request *requests)
{
    size_t at = 0;
    for (int i = 0; i < peer->window; i++, at = peer_next(peer, at))
        fabric_receive(peer->receive + at, peer->bytes, MESSAGE, &requests[i]);
}

/* A window of messages in one direction, and a short answer. */
static inline void one_way(struct peer *peer, long rounds)
{
    static char answer[4];
    for (long round = 0; round < rounds; round++) {
        long sent = fabric.sent, received = fabric.received;
        if (peer->starts) {
            start_sends(peer, peer->requests);
            fabric_wait(sent + peer->window, 0);
            fabric_receive(answer, sizeof answer, ANSWER, fabric.answer);
            fabric_wait(0, received + 1);
        } else {
            start_receives(peer, peer->requests);
            fabric_wait(0, received + peer->window);
            fabric_send(answer, sizeof answer, ANSWER, fabric.answer);
            fabric_wait(sent + 1, 0);
        }
    }
}

/* A window in each direction at the same time. */
static inline void both_ways(struct peer *peer, long rounds)
{
    for (long round = 0; round < rounds; round++) {
        long sent = fabric.sent, received = fabric.received;
        start_receives(peer, peer->requests);
        start_sends(peer, peer->requests + peer->window);
        fabric_wait(sent + peer->window, received + peer->window);
    }
}

static inline double bandwidth(const struct peer *peer, double seconds, long rounds)
{
    return (double)rounds * peer->window * (double)peer->bytes / seconds / 1e6;
}

static inline double both_bandwidths(const struct peer *peer, double seconds, long rounds)
{
    return 2.0 * bandwidth(peer, seconds, rounds);
}

static inline double rate(const struct peer *peer, double seconds, long rounds)
{
    return (double)rounds * peer->window / seconds;
}

#define PATTERN_LATENCY {.run = ping_pong, .value = one_way_time}
#define PATTERN_BANDWIDTH {.run = one_way, .value = bandwidth}
#define PATTERN_BIBANDWIDTH {.run = both_ways, .value = both_bandwidths}
#define PATTERN_RATE {.run = one_way, .value = rate}

int main(int argc, char **argv)
{
    static const struct peer_program program = PATTERN;
    return fabric_main(argc, argv, &program);
}
