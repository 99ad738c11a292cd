/* Half a round trip of 8 bytes in microseconds while receives that do not match are waiting. */
#define PEER_DEPTH
#include "ping_pong.h"

int main(int argc, char **argv)
{
    return peer_main(argc, argv, 1, ping_pong, one_way_time, PEER_MEAN);
}
