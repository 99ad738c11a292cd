/* A collective operation of all ranks, timed one by one: benches/src/collective.rs. Build it
 * with -DOPERATION=OP_BCAST and so on, and with -DFORM=FORM_BLOCKING, FORM_NONBLOCKING,
 * FORM_HIDDEN or FORM_PERSISTENT. */
#include "peer.h"

#define FORM_BLOCKING 0
#define FORM_NONBLOCKING 1
#define FORM_HIDDEN 2
#define FORM_PERSISTENT 3

/* Calls an operation in its form: its name in both spellings, and the arguments of all forms. */
#if FORM == FORM_BLOCKING
#define CALL(Name, name, ...) MPI_##Name(__VA_ARGS__)
#elif FORM == FORM_PERSISTENT
/* Open MPI 5 has persistent collectives, but reports MPI 3.1. */
#if MPI_VERSION < 4 && !(defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#error "persistent collective operations are of MPI 4"
#endif
#define CALL(Name, name, ...) MPI_##Name##_init(__VA_ARGS__, MPI_INFO_NULL, request)
#else
#define CALL(Name, name, ...) MPI_I##name(__VA_ARGS__, request)
#endif

enum {
    OP_BCAST,
    OP_GATHER,
    OP_SCATTER,
    OP_ALLGATHER,
    OP_ALLTOALL,
    OP_REDUCE,
    OP_ALLREDUCE,
    OP_REDUCE_SCATTER,
    OP_SCAN,
    OP_EXSCAN,
    OP_GATHERV,
    OP_SCATTERV,
    OP_ALLGATHERV,
    OP_ALLTOALLV,
    OP_ALLTOALLW,
    OP_REDUCE_SCATTER_BLOCK,
    OP_NEIGHBOR_ALLGATHER,
    OP_NEIGHBOR_ALLGATHERV,
    OP_NEIGHBOR_ALLTOALL,
    OP_NEIGHBOR_ALLTOALLV,
    OP_NEIGHBOR_ALLTOALLW,
    OP_BARRIER
};
enum { ROOT = 0, LOOKS = 20, SIDES = 2 };

static float *out, *in;
static int items, *counts;
/* For operations on equal blocks: the items in a block of a reduce-scatter; for each block its
 * items, its place in items and in bytes, and its type. */
static int part, *blocks, *places, *offsets;
static MPI_Aint *sides; /* The offsets, for neighbour operations. */
static MPI_Datatype *types;
static MPI_Comm ring; /* Each rank has one before it and one after it. */

/* What a rank has measured, in seconds. */
static struct {
    double operation, compute;
} seen;

static void begin(MPI_Request *request)
{
    MPI_Comm comm = MPI_COMM_WORLD;
    (void)request;
    switch (OPERATION) {
    case OP_BCAST:
        CALL(Bcast, bcast, in, items, MPI_FLOAT, ROOT, comm);
        break;
    case OP_GATHER:
        CALL(Gather, gather, out, items, MPI_FLOAT, in, items, MPI_FLOAT, ROOT, comm);
        break;
    case OP_SCATTER:
        CALL(Scatter, scatter, out, items, MPI_FLOAT, in, items, MPI_FLOAT, ROOT, comm);
        break;
    case OP_ALLGATHER:
        CALL(Allgather, allgather, out, items, MPI_FLOAT, in, items, MPI_FLOAT, comm);
        break;
    case OP_ALLTOALL:
        CALL(Alltoall, alltoall, out, items, MPI_FLOAT, in, items, MPI_FLOAT, comm);
        break;
    case OP_REDUCE:
        CALL(Reduce, reduce, out, in, items, MPI_FLOAT, MPI_SUM, ROOT, comm);
        break;
    case OP_ALLREDUCE:
        CALL(Allreduce, allreduce, out, in, items, MPI_FLOAT, MPI_SUM, comm);
        break;
    case OP_REDUCE_SCATTER:
        CALL(Reduce_scatter, reduce_scatter, out, in, counts, MPI_FLOAT, MPI_SUM, comm);
        break;
    case OP_SCAN:
        CALL(Scan, scan, out, in, items, MPI_FLOAT, MPI_SUM, comm);
        break;
    case OP_EXSCAN:
        CALL(Exscan, exscan, out, in, items, MPI_FLOAT, MPI_SUM, comm);
        break;
    case OP_GATHERV:
        CALL(Gatherv, gatherv, out, items, MPI_FLOAT, in, blocks, places, MPI_FLOAT, ROOT, comm);
        break;
    case OP_SCATTERV:
        CALL(Scatterv, scatterv, out, blocks, places, MPI_FLOAT, in, items, MPI_FLOAT, ROOT, comm);
        break;
    case OP_ALLGATHERV:
        CALL(Allgatherv, allgatherv, out, items, MPI_FLOAT, in, blocks, places, MPI_FLOAT, comm);
        break;
    case OP_ALLTOALLV:
        CALL(Alltoallv, alltoallv, out, blocks, places, MPI_FLOAT, in, blocks, places, MPI_FLOAT, comm);
        break;
    case OP_ALLTOALLW:
        CALL(Alltoallw, alltoallw, out, blocks, offsets, types, in, blocks, offsets, types, comm);
        break;
    case OP_REDUCE_SCATTER_BLOCK:
        CALL(Reduce_scatter_block, reduce_scatter_block, out, in, part, MPI_FLOAT, MPI_SUM, comm);
        break;
    case OP_NEIGHBOR_ALLGATHER:
        CALL(Neighbor_allgather, neighbor_allgather, out, items, MPI_FLOAT, in, items, MPI_FLOAT, ring);
        break;
    case OP_NEIGHBOR_ALLGATHERV:
        CALL(Neighbor_allgatherv, neighbor_allgatherv, out, items, MPI_FLOAT,
             in, blocks, places, MPI_FLOAT, ring);
        break;
    case OP_NEIGHBOR_ALLTOALL:
        CALL(Neighbor_alltoall, neighbor_alltoall, out, items, MPI_FLOAT, in, items, MPI_FLOAT, ring);
        break;
    case OP_NEIGHBOR_ALLTOALLV:
        CALL(Neighbor_alltoallv, neighbor_alltoallv, out, blocks, places, MPI_FLOAT,
             in, blocks, places, MPI_FLOAT, ring);
        break;
    case OP_NEIGHBOR_ALLTOALLW:
        CALL(Neighbor_alltoallw, neighbor_alltoallw, out, blocks, sides, types,
             in, blocks, sides, types, ring);
        break;
    case OP_BARRIER:
        CALL(Barrier, barrier, comm);
        break;
    }
}

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

static long turns; /* of the computation */

static MPI_Request again; /* of a persistent operation */

/* Starts the operation, computes if the operation is to be hidden, and waits. */
static void operation(void)
{
    MPI_Request request = again;
    int done;
    if (FORM == FORM_PERSISTENT)
        MPI_Start(&request);
    else
        begin(&request);
    if (FORM == FORM_BLOCKING)
        return;
    if (turns > 0) {
        double started = MPI_Wtime();
        for (int look = 0; look < LOOKS; look++) {
            compute(turns / LOOKS);
            MPI_Request_get_status(request, &done, MPI_STATUS_IGNORE);
        }
        seen.compute += MPI_Wtime() - started;
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void operations(struct peer *peer, long rounds)
{
    (void)peer;
    seen.operation = seen.compute = 0;
    for (long round = 0; round < rounds; round++) {
        double begun = MPI_Wtime();
        operation();
        seen.operation += MPI_Wtime() - begun;
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

static float *floats(size_t count)
{
    float *memory = (float *)peer_buffer(count * sizeof(float), 0);
    for (size_t at = 0; at < count; at++)
        memory[at] = 1;
    return memory;
}

static int has_all(const int *operations, size_t count)
{
    for (size_t at = 0; at < count; at++)
        if (operations[at] == OPERATION)
            return 1;
    return 0;
}

/* Allocates memory and lists for an operation of `count` items: of the whole message, or of a
 * rank's block. */
static void prepare(struct peer *peer, size_t count)
{
    static const int sends[] = {OP_SCATTER, OP_SCATTERV, OP_ALLTOALL, OP_ALLTOALLV, OP_ALLTOALLW,
                                OP_NEIGHBOR_ALLTOALL, OP_NEIGHBOR_ALLTOALLV, OP_NEIGHBOR_ALLTOALLW};
    static const int gathers[] = {OP_GATHER,   OP_GATHERV,   OP_ALLGATHER, OP_ALLGATHERV,
                                  OP_ALLTOALL, OP_ALLTOALLV, OP_ALLTOALLW,
                                  OP_NEIGHBOR_ALLGATHER, OP_NEIGHBOR_ALLGATHERV, OP_NEIGHBOR_ALLTOALL,
                                  OP_NEIGHBOR_ALLTOALLV, OP_NEIGHBOR_ALLTOALLW};
    static const int in_items[] = {OP_GATHERV,   OP_SCATTERV,            OP_ALLGATHERV,
                                   OP_ALLTOALLV, OP_NEIGHBOR_ALLGATHERV, OP_NEIGHBOR_ALLTOALLV};
    static const int in_bytes[] = {OP_ALLTOALLW};
    static const int on_ring[] = {OP_NEIGHBOR_ALLGATHER, OP_NEIGHBOR_ALLGATHERV, OP_NEIGHBOR_ALLTOALL,
                                  OP_NEIGHBOR_ALLTOALLV, OP_NEIGHBOR_ALLTOALLW};
    int has_places = has_all(in_items, sizeof in_items / sizeof *in_items);
    int has_offsets = has_all(in_bytes, sizeof in_bytes / sizeof *in_bytes);
    int has_sides = has_all(on_ring, sizeof on_ring / sizeof *on_ring);
    size_t ranks = (size_t)peer->size, lists = has_sides ? SIDES : ranks;
    size_t all = count * (has_sides ? SIDES : ranks);
    if (count > INT_MAX)
        peer_fail("more items than an int counts", "use shorter messages");
    if (has_places && (lists - 1) * count > INT_MAX)
        peer_fail("displacements in items that no int holds", "use shorter messages");
    if (has_offsets && (ranks - 1) * count > INT_MAX / sizeof(float))
        peer_fail("displacements in bytes that no int holds", "use shorter messages");
    items = (int)count;
    part = (int)((count + ranks - 1) / ranks);
    size_t contribution = OPERATION == OP_REDUCE_SCATTER_BLOCK ? (size_t)part * ranks : count;
    out = floats(has_all(sends, sizeof sends / sizeof *sends) ? all : contribution);
    in = floats(has_all(gathers, sizeof gathers / sizeof *gathers) ? all : count);
    counts = peer_memory(lists * sizeof *counts);
    blocks = peer_memory(lists * sizeof *blocks);
    places = peer_memory(lists * sizeof *places);
    offsets = peer_memory(lists * sizeof *offsets);
    sides = peer_memory(lists * sizeof *sides);
    types = peer_memory(lists * sizeof *types);
    for (int at = 0; at < (int)lists; at++) {
        counts[at] = items / peer->size + (at < items % peer->size);
        blocks[at] = items;
        places[at] = has_places ? at * items : 0;
        offsets[at] = has_offsets ? at * items * (int)sizeof(float) : 0;
        sides[at] = (MPI_Aint)at * items * (MPI_Aint)sizeof(float);
        types[at] = MPI_FLOAT;
    }
    ring = MPI_COMM_NULL;
    if (has_sides) {
        int around[] = {peer->size}, periodic[] = {1};
        MPI_Cart_create(MPI_COMM_WORLD, 1, around, periodic, 0, &ring);
    }
    again = MPI_REQUEST_NULL;
    if (FORM == FORM_PERSISTENT)
        begin(&again);
}

static void release(void)
{
    if (again != MPI_REQUEST_NULL)
        MPI_Request_free(&again);
    if (ring != MPI_COMM_NULL)
        MPI_Comm_free(&ring);
    free(out);
    free(in);
    free(counts);
    free(blocks);
    free(places);
    free(offsets);
    free(sides);
    free(types);
}

static double figure(struct peer *peer, long planned, long warm_up, long *rounds)
{
    static const struct peer_program alone = {.run = operations};
    prepare(peer, peer->bytes / sizeof(float));
    turns = 0;
    peer_rounds(peer, &alone, planned, warm_up, rounds);
    double pure = seen.operation / (double)*rounds;
    double result = pure * 1e6;
    if (FORM == FORM_HIDDEN) {
        turns = (long)(pure / seconds_of_a_turn());
        if (turns < LOOKS)
            turns = LOOKS;
        operations(peer, *rounds);
        double open = (seen.operation - seen.compute) / (pure * (double)*rounds);
        double share = 1 - open;
        result = 100 * (share < 0 ? 0 : share > 1 ? 1 : share);
    }
    release();
    return result;
}

int main(int argc, char **argv)
{
    static const struct peer_program program = {.counts = PEER_ALL, .direct = figure};
    return peer_main(argc, argv, &program);
}
