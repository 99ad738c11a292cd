/* Half a round trip of 8 bytes in microseconds while receives from any source are waiting. */
#include "waiting.h"

int main(int argc, char **argv)
{
    static const struct peer_program program = {.run = ping_pong, .value = one_way_time, .sizes_are_counts = 1,
                                                .before = put_wildcards, .after = cancel_receives};
    return peer_main(argc, argv, &program);
}
