/* Processor time of a rank that waits, in percent of the time that it waits: benches/src/direct.rs. */
#include "peer.h"

#include <sys/resource.h>

static double processor_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static double idle(struct peer *peer, long planned, long warm_up, long *rounds)
{
    (void)planned, (void)warm_up, (void)rounds;
    char message[8] = {0};
    double used = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    if (peer->partner >= 0 && peer->starts) {
        struct timespec rest = {(time_t)peer->limit,
                                (long)((peer->limit - (double)(time_t)peer->limit) * 1e9)};
        nanosleep(&rest, NULL);
        MPI_Send(message, sizeof message, MPI_BYTE, peer->partner, MESSAGE, MPI_COMM_WORLD);
    } else if (peer->partner >= 0) {
        double begun = MPI_Wtime(), before = processor_seconds();
        MPI_Recv(message, sizeof message, MPI_BYTE, peer->partner, MESSAGE, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        used = (processor_seconds() - before) / (MPI_Wtime() - begun);
    }
    return 100 * used;
}

int main(int argc, char **argv)
{
    static const struct peer_program program = {.counts = PEER_ANSWERERS, .direct = idle};
    return peer_main(argc, argv, &program);
}
