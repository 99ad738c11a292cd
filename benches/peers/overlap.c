/* The share of a send, in percent, that hides behind a computation: benches/src/direct.rs,
 * `overlap`. */
#include "peer.h"

enum { COMPUTES = 4 };

/* What a sender has measured of its sends, in seconds. */
struct seen {
    double send, compute;
};

static long turns; /* of the computation, for each send */
static struct seen seen;

static void compute(long count)
{
    volatile unsigned long value = 1;
    for (long turn = 0; turn < count; turn++)
        value *= (unsigned long)turn | 1;
}

static double seconds_of_a_turn(void)
{
    enum { TURNS = 100000 };
    compute(TURNS);
    double begun = peer_monotonic();
    compute(TURNS);
    return (peer_monotonic() - begun) / TURNS;
}

static void sends(struct peer *peer, long rounds)
{
    char ready[4] = {0};
    int bytes = (int)peer->bytes, partner = peer->partner;
    seen = (struct seen){0, 0};
    for (long round = 0; round < rounds && partner >= 0; round++) {
        if (peer->starts) {
            MPI_Request request;
            MPI_Recv(ready, sizeof ready, MPI_BYTE, partner, ANSWER, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
            double begun = MPI_Wtime();
            MPI_Isend(peer->send, bytes, MPI_BYTE, partner, MESSAGE, MPI_COMM_WORLD, &request);
            double started = MPI_Wtime();
            compute(turns);
            double computed = MPI_Wtime();
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            seen.send += MPI_Wtime() - begun;
            seen.compute += computed - started;
        } else {
            MPI_Send(ready, sizeof ready, MPI_BYTE, partner, ANSWER, MPI_COMM_WORLD);
            MPI_Recv(peer->receive, bytes, MPI_BYTE, partner, MESSAGE, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        }
    }
}

static double hidden(struct peer *peer, long planned, long warm_up, long *rounds)
{
    static const struct peer_program alone = {.run = sends};
    double each = seconds_of_a_turn();
    turns = 0;
    peer_rounds(peer, &alone, planned, warm_up, rounds);
    double pure = seen.send;
    turns = (long)(COMPUTES * pure / (double)*rounds / each);
    MPI_Barrier(MPI_COMM_WORLD);
    sends(peer, *rounds);
    double share = pure > 0 ? 1 - (seen.send - seen.compute) / pure : 0;
    return 100 * (share < 0 ? 0 : share > 1 ? 1 : share);
}

int main(int argc, char **argv)
{
    static const struct peer_program program = {.direct = hidden};
    return peer_main(argc, argv, &program);
}
