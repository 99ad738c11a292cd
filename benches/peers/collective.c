/* A collective operation of all ranks, timed one by one: benches/src/collective.rs. Built with
 * -DOPERATION=OP_BCAST and so on, and -DFORM=FORM_BLOCKING, FORM_NONBLOCKING or FORM_HIDDEN. */
#include "peer.h"

enum { FORM_BLOCKING, FORM_NONBLOCKING, FORM_HIDDEN };
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
    OP_BARRIER
};
enum { ROOT = 0, LOOKS = 20 };

static float *out, *in;
static int items, *counts;
/* Of blocks that are all the same: items of each, of a reduce-scatter's vector, places in items and bytes, types. */
static int part, *blocks, *places, *offsets;
static MPI_Datatype *types;

/* What a rank has seen, in seconds. */
static struct {
    double operation, compute;
} seen;

static void begin(MPI_Request *request)
{
    MPI_Comm comm = MPI_COMM_WORLD;
    switch (OPERATION) {
    case OP_BCAST:
        MPI_Ibcast(in, items, MPI_FLOAT, ROOT, comm, request);
        break;
    case OP_GATHER:
        MPI_Igather(out, items, MPI_FLOAT, in, items, MPI_FLOAT, ROOT, comm, request);
        break;
    case OP_SCATTER:
        MPI_Iscatter(out, items, MPI_FLOAT, in, items, MPI_FLOAT, ROOT, comm, request);
        break;
    case OP_ALLGATHER:
        MPI_Iallgather(out, items, MPI_FLOAT, in, items, MPI_FLOAT, comm, request);
        break;
    case OP_ALLTOALL:
        MPI_Ialltoall(out, items, MPI_FLOAT, in, items, MPI_FLOAT, comm, request);
        break;
    case OP_REDUCE:
        MPI_Ireduce(out, in, items, MPI_FLOAT, MPI_SUM, ROOT, comm, request);
        break;
    case OP_ALLREDUCE:
        MPI_Iallreduce(out, in, items, MPI_FLOAT, MPI_SUM, comm, request);
        break;
    case OP_REDUCE_SCATTER:
        MPI_Ireduce_scatter(out, in, counts, MPI_FLOAT, MPI_SUM, comm, request);
        break;
    case OP_SCAN:
        MPI_Iscan(out, in, items, MPI_FLOAT, MPI_SUM, comm, request);
        break;
    case OP_EXSCAN:
        MPI_Iexscan(out, in, items, MPI_FLOAT, MPI_SUM, comm, request);
        break;
    case OP_GATHERV:
        MPI_Igatherv(out, items, MPI_FLOAT, in, blocks, places, MPI_FLOAT, ROOT, comm, request);
        break;
    case OP_SCATTERV:
        MPI_Iscatterv(out, blocks, places, MPI_FLOAT, in, items, MPI_FLOAT, ROOT, comm, request);
        break;
    case OP_ALLGATHERV:
        MPI_Iallgatherv(out, items, MPI_FLOAT, in, blocks, places, MPI_FLOAT, comm, request);
        break;
    case OP_ALLTOALLV:
        MPI_Ialltoallv(out, blocks, places, MPI_FLOAT, in, blocks, places, MPI_FLOAT, comm, request);
        break;
    case OP_ALLTOALLW:
        MPI_Ialltoallw(out, blocks, offsets, types, in, blocks, offsets, types, comm, request);
        break;
    case OP_REDUCE_SCATTER_BLOCK:
        MPI_Ireduce_scatter_block(out, in, part, MPI_FLOAT, MPI_SUM, comm, request);
        break;
    case OP_BARRIER:
        MPI_Ibarrier(comm, request);
        break;
    }
}

static void call(void)
{
    MPI_Comm comm = MPI_COMM_WORLD;
    switch (OPERATION) {
    case OP_BCAST:
        MPI_Bcast(in, items, MPI_FLOAT, ROOT, comm);
        break;
    case OP_GATHER:
        MPI_Gather(out, items, MPI_FLOAT, in, items, MPI_FLOAT, ROOT, comm);
        break;
    case OP_SCATTER:
        MPI_Scatter(out, items, MPI_FLOAT, in, items, MPI_FLOAT, ROOT, comm);
        break;
    case OP_ALLGATHER:
        MPI_Allgather(out, items, MPI_FLOAT, in, items, MPI_FLOAT, comm);
        break;
    case OP_ALLTOALL:
        MPI_Alltoall(out, items, MPI_FLOAT, in, items, MPI_FLOAT, comm);
        break;
    case OP_REDUCE:
        MPI_Reduce(out, in, items, MPI_FLOAT, MPI_SUM, ROOT, comm);
        break;
    case OP_ALLREDUCE:
        MPI_Allreduce(out, in, items, MPI_FLOAT, MPI_SUM, comm);
        break;
    case OP_REDUCE_SCATTER:
        MPI_Reduce_scatter(out, in, counts, MPI_FLOAT, MPI_SUM, comm);
        break;
    case OP_SCAN:
        MPI_Scan(out, in, items, MPI_FLOAT, MPI_SUM, comm);
        break;
    case OP_EXSCAN:
        MPI_Exscan(out, in, items, MPI_FLOAT, MPI_SUM, comm);
        break;
    case OP_GATHERV:
        MPI_Gatherv(out, items, MPI_FLOAT, in, blocks, places, MPI_FLOAT, ROOT, comm);
        break;
    case OP_SCATTERV:
        MPI_Scatterv(out, blocks, places, MPI_FLOAT, in, items, MPI_FLOAT, ROOT, comm);
        break;
    case OP_ALLGATHERV:
        MPI_Allgatherv(out, items, MPI_FLOAT, in, blocks, places, MPI_FLOAT, comm);
        break;
    case OP_ALLTOALLV:
        MPI_Alltoallv(out, blocks, places, MPI_FLOAT, in, blocks, places, MPI_FLOAT, comm);
        break;
    case OP_ALLTOALLW:
        MPI_Alltoallw(out, blocks, offsets, types, in, blocks, offsets, types, comm);
        break;
    case OP_REDUCE_SCATTER_BLOCK:
        MPI_Reduce_scatter_block(out, in, part, MPI_FLOAT, MPI_SUM, comm);
        break;
    case OP_BARRIER:
        MPI_Barrier(comm);
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

static void operations(struct peer *peer, long rounds)
{
    (void)peer;
    seen.operation = seen.compute = 0;
    for (long round = 0; round < rounds; round++) {
        double begun = MPI_Wtime();
        if (FORM == FORM_BLOCKING) {
            call();
        } else {
            MPI_Request request;
            int done;
            begin(&request);
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

/* Memory and lists for an operation of so many items, of the whole message or of a rank's block. */
static void prepare(struct peer *peer, size_t count)
{
    static const int sends[] = {OP_SCATTER, OP_SCATTERV, OP_ALLTOALL, OP_ALLTOALLV, OP_ALLTOALLW};
    static const int gathers[] = {OP_GATHER,   OP_GATHERV,   OP_ALLGATHER, OP_ALLGATHERV,
                                  OP_ALLTOALL, OP_ALLTOALLV, OP_ALLTOALLW};
    static const int in_items[] = {OP_GATHERV, OP_SCATTERV, OP_ALLGATHERV, OP_ALLTOALLV};
    static const int in_bytes[] = {OP_ALLTOALLW};
    int has_places = has_all(in_items, sizeof in_items / sizeof *in_items);
    int has_offsets = has_all(in_bytes, sizeof in_bytes / sizeof *in_bytes);
    size_t ranks = (size_t)peer->size, all = count * ranks;
    if (count > INT_MAX)
        peer_fail("more items than an int counts", "use shorter messages");
    if (has_places && (ranks - 1) * count > INT_MAX)
        peer_fail("displacements in items that no int holds", "use shorter messages");
    if (has_offsets && (ranks - 1) * count > INT_MAX / sizeof(float))
        peer_fail("displacements in bytes that no int holds", "use shorter messages");
    items = (int)count;
    part = (int)((count + ranks - 1) / ranks);
    size_t contribution = OPERATION == OP_REDUCE_SCATTER_BLOCK ? (size_t)part * ranks : count;
    out = floats(has_all(sends, sizeof sends / sizeof *sends) ? all : contribution);
    in = floats(has_all(gathers, sizeof gathers / sizeof *gathers) ? all : count);
    counts = peer_memory(ranks * sizeof *counts);
    blocks = peer_memory(ranks * sizeof *blocks);
    places = peer_memory(ranks * sizeof *places);
    offsets = peer_memory(ranks * sizeof *offsets);
    types = peer_memory(ranks * sizeof *types);
    for (int rank = 0; rank < peer->size; rank++) {
        counts[rank] = items / peer->size + (rank < items % peer->size);
        blocks[rank] = items;
        places[rank] = has_places ? rank * items : 0;
        offsets[rank] = has_offsets ? rank * items * (int)sizeof(float) : 0;
        types[rank] = MPI_FLOAT;
    }
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
    free(out);
    free(in);
    free(counts);
    free(blocks);
    free(places);
    free(offsets);
    free(types);
    return result;
}

int main(int argc, char **argv)
{
    static const struct peer_program program = {.counts = PEER_ALL, .direct = figure};
    return peer_main(argc, argv, &program);
}
