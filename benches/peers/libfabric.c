/* Loops over libfabric's tagged messages, with nothing in between: the limit for any layer above
 * it. The steps are those of ping_pong.h and windows.h. */
#include "fabric.h"

/* Memory of this length, the same as before if it is long enough. */
static char *other_memory(size_t bytes)
{
    static char *other;
    static size_t have;
    if (bytes > have) {
        free(other);
        other = peer_buffer(bytes, 0);
        have = bytes;
    }
    return other;
}

/* As ping_pong, through other memory. */
static void copied_ping_pong(struct peer *peer, long rounds)
{
    char *other = other_memory(peer->area);
    for (long round = 0; round < rounds; round++) {
        long sent = fabric.sent + 1, received = fabric.received + 1;
        fabric_receive(other, peer->bytes, MESSAGE, &peer->requests[0]);
        if (!peer->starts) {
            fabric_wait(0, received);
            memcpy(peer->receive, other, peer->bytes);
        }
        fabric_send(peer->send, peer->bytes, MESSAGE, &peer->requests[1]);
        fabric_wait(sent, received);
        if (peer->starts)
            memcpy(peer->receive, other, peer->bytes);
    }
}

/* Reads the message that was announced, and says so. */
static void take(const struct peer *peer, const struct fabric_place *place)
{
    static char done;
    long sent = fabric.sent + 1;
    FABRIC_TRY(fi_read(fabric.ep, peer->receive, peer->bytes, fabric.receive_desc, fabric.partner,
                       place->address, place->key, &peer->requests[1]));
    fabric_wait(sent, 0);
    fabric_send(&done, sizeof done, ANSWER, NULL);
}

/* As ping_pong, by reads. Every receive is posted before its message can arrive, which therefore
 * needs two places: the next announcement may come right behind the answer. */
static void read_ping_pong(struct peer *peer, long rounds)
{
    static struct fabric_place places[2];
    static char done;
    long received = fabric.received;
    fabric_receive(&places[0], sizeof *places, MESSAGE, &peer->requests[0]);
    for (long round = 0; round < rounds; round++) {
        fabric_receive(&done, sizeof done, ANSWER, fabric.answer);
        if (peer->starts) {
            fabric_send(&fabric.place, sizeof fabric.place, MESSAGE, NULL);
            /* The answer comes first. */
            fabric_wait(0, received + 2);
        } else {
            fabric_wait(0, received + 1);
        }
        if (round + 1 < rounds)
            fabric_receive(&places[(round + 1) % 2], sizeof *places, MESSAGE, &peer->requests[0]);
        take(peer, &places[round % 2]);
        if (!peer->starts)
            fabric_send(&fabric.place, sizeof fabric.place, MESSAGE, NULL);
        received += 2;
        if (!peer->starts)
            fabric_wait(0, received);
    }
}

/* Half a round trip in microseconds. The receive is posted before the answer can arrive. */
static inline void ping_pong(struct peer *peer, long rounds)
{
    if (fabric.way == COPIED)
        return copied_ping_pong(peer, rounds);
    if (fabric.way == READ)
        return read_ping_pong(peer, rounds);
    for (long round = 0; round < rounds; round++) {
        long sent = fabric.sent + 1, received = fabric.received + 1;
        fabric_receive(peer->receive, peer->bytes, MESSAGE, &peer->requests[0]);
        if (!peer->starts)
            fabric_wait(0, received);
        fabric_send(peer->send, peer->bytes, MESSAGE, &peer->requests[1]);
        fabric_wait(sent, received);
    }
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

int main(int argc, char **argv)
{
    static const struct peer_program program = PATTERN;
    return pair_main(argc, argv, &program);
}
