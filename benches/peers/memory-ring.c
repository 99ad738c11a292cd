/* Memory in KiB of a rank that has exchanged messages with its neighbours. */
#include "talk.h"

static double memory(struct peer *peer, long planned, long warm_up, long *rounds)
{
    (void)planned, (void)warm_up, (void)rounds;
    return memory_after(peer, peer->size > 1);
}

int main(int argc, char **argv)
{
    static const struct peer_program program = {.counts = PEER_ALL, .direct = memory};
    return peer_main(argc, argv, &program);
}
