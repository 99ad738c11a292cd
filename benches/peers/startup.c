/* Milliseconds from the start of the job until a rank has received a message from a neighbour. */
#include "talk.h"

static double since_begun(struct peer *peer, long planned, long warm_up, long *rounds)
{
    (void)planned, (void)warm_up, (void)rounds;
    talk(peer, 1);
    return (peer_monotonic() - peer->begun) * 1e3;
}

int main(int argc, char **argv)
{
    static const struct peer_program program = {.counts = PEER_ALL, .pool = PEER_MOST, .direct = since_begun};
    return peer_main(argc, argv, &program);
}
