/* Microseconds per message if the receives are matched in a random order. */
#include "drain.h"

int main(int argc, char **argv)
{
    static const struct peer_program program = {.run = drain_rounds, .value = drain_each, .sizes_are_counts = 1,
                                                .before = drain_random, .after = drain_free};
    return peer_main(argc, argv, &program);
}
