/* Megabytes (10^6 bytes) per second one way, as osu_bw. */
#include "windows.h"

static double bandwidth(const struct peer *peer, double seconds, long rounds)
{
    return (double)rounds * peer->window * (double)peer->bytes / seconds / 1e6;
}

int main(int argc, char **argv)
{
    static const struct peer_program program = {.pool = PEER_SUM, .run = one_way, .value = bandwidth};
    return peer_main(argc, argv, &program);
}
