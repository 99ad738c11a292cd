/* Half a round trip in microseconds, as osu_latency. */
#include "ping_pong.h"

int main(int argc, char **argv)
{
    return peer_main(argc, argv, 1, ping_pong, one_way_time, PEER_MEAN);
}
