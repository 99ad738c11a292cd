/* Messages per second one way, all pairs together, as osu_mbw_mr. */
#include "windows.h"

static double rate(const struct peer *peer, double seconds, long rounds)
{
    return (double)rounds * peer->window / seconds;
}

int main(int argc, char **argv)
{
    static const struct peer_program program = {.pool = PEER_SUM, .run = one_way, .value = rate};
    return peer_main(argc, argv, &program);
}
