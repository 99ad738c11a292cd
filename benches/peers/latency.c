/* Half a round trip in microseconds, as osu_latency. */
#include "ping_pong.h"

int main(int argc, char **argv)
{
    static const struct peer_program program = {.run = ping_pong, .value = one_way_time};
    return peer_main(argc, argv, &program);
}
