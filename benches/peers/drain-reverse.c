/* Microseconds per message if each message matches the last of the posted receives. */
#include "drain.h"

int main(int argc, char **argv)
{
    static const struct peer_program program = {.run = drain_rounds, .value = drain_each, .sizes_are_counts = 1,
                                                .before = drain_reverse, .after = drain_free};
    return peer_main(argc, argv, &program);
}
