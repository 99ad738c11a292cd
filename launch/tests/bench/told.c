/* Prints on which processors each rank runs, in MPI_Init and after it, and in which order
 * drain-random sends. */
#include "drain.h"

static cpu_set_t early;

/* Overrides MPI's own function. */
int MPI_Init_thread(int *argc, char ***argv, int wanted, int *level)
{
    sched_getaffinity(0, sizeof early, &early);
    return PMPI_Init_thread(argc, argv, wanted, level);
}

/* Appends a line of numbers to a text. */
static void add(char *text, const char *what, int rank, const cpu_set_t *set)
{
    sprintf(text + strlen(text), "%s %d", what, rank);
    for (int at = 0; at < CPU_SETSIZE; at++)
        if (CPU_ISSET(at, set))
            sprintf(text + strlen(text), " %d", at);
    strcat(text, "\n");
}

static double tell(struct peer *peer, long planned, long warm_up, long *rounds)
{
    (void)planned, (void)warm_up, (void)rounds;
    static char text[2 * (20 + 5 * CPU_SETSIZE)];
    cpu_set_t now;
    sched_getaffinity(0, sizeof now, &now);
    add(text, "early", peer->rank, &early);
    add(text, "placed", peer->rank, &now);
    if (peer->rank != 0) {
        MPI_Send(text, sizeof text, MPI_CHAR, 0, ANSWER, MPI_COMM_WORLD);
        return 1;
    }
    /* One rank prints everything, because launchers mix the output of several ranks. */
    struct drain *drain = peer->state;
    printf("order");
    for (int at = 0; at < (int)peer->plan; at++)
        printf(" %d", drain->order[at]);
    printf("\n%s", text);
    for (int rank = 1; rank < peer->size; rank++) {
        MPI_Recv(text, sizeof text, MPI_CHAR, rank, ANSWER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        printf("%s", text);
    }
    return 1;
}

int main(int argc, char **argv)
{
    static const struct peer_program program = {
        .counts = PEER_ALL,
        .pool = PEER_MOST,
        .direct = tell,
        .before = drain_random,
        .after = drain_free,
        .sizes_are_counts = 1,
    };
    return peer_main(argc, argv, &program);
}
