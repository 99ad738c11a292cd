/* Messages per second one way, all pairs together, as osu_mbw_mr. */
#include "windows.h"

static double rate(const struct peer *peer, double seconds, long rounds)
{
    return (double)rounds * peer->window / seconds;
}

int main(int argc, char **argv)
{
    return peer_main(argc, argv, 1, one_way, rate, PEER_SUM);
}
