/* Half a round trip in microseconds while several threads of each rank talk at the same time:
 * benches/src/many.rs. */
#include "ping_pong.h"

#include <pthread.h>

struct talker {
    const struct peer *peer;
    long rounds;
    int tag;
    char *send, *receive;
    pthread_t thread;
};

static void *talk(void *argument)
{
    struct talker *talker = argument;
    ping_pong_with(talker->peer, talker->rounds, talker->tag, talker->send, talker->receive);
    return NULL;
}

static void make_talkers(struct peer *peer)
{
    struct talker *talkers = peer_memory((size_t)peer->threads * sizeof *talkers);
    for (int at = 0; at < peer->threads; at++) {
        talkers[at].peer = peer;
        talkers[at].tag = at;
        talkers[at].send = peer_buffer(peer->bytes, peer->rank);
        talkers[at].receive = peer_buffer(peer->bytes, 0);
    }
    peer->state = talkers;
}

static void free_talkers(struct peer *peer)
{
    struct talker *talkers = peer->state;
    for (int at = 0; at < peer->threads; at++) {
        free(talkers[at].send);
        free(talkers[at].receive);
    }
    free(talkers);
}

static void all_talk(struct peer *peer, long rounds)
{
    struct talker *talkers = peer->state;
    for (int at = 0; at < peer->threads; at++) {
        talkers[at].rounds = rounds;
        if (pthread_create(&talkers[at].thread, NULL, talk, &talkers[at]) != 0)
            peer_fail("cannot start a thread", "use fewer");
    }
    for (int at = 0; at < peer->threads; at++)
        pthread_join(talkers[at].thread, NULL);
}

int main(int argc, char **argv)
{
    static const struct peer_program program = {.run = all_talk,
                                                .value = one_way_time,
                                                .before = make_talkers,
                                                .after = free_talkers,
                                                .threaded = 1};
    return peer_main(argc, argv, &program);
}
