/* Loops that copy by process_vm_readv, with nothing in between: the limit for any layer whose
 * receivers read messages where their senders have them. The steps are those of ping_pong.h and
 * windows.h.
 *
 * Each rank counts, in a line of its own, the messages that it has announced and those that it has
 * read. A window is announced as a whole.
 *
 * `PROGRAM --version` prints the version of the system.
 */
typedef char peer_request;

#include "pair.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/utsname.h>

/* What a rank says to the other one. Each count has a line of its own. */
struct readv_words {
    _Alignas(128) atomic_long announced;
    _Alignas(128) atomic_long read;
};

/* What a rank tells the other one before a size. */
struct readv_place {
    pid_t pid;
    char *send;
};

static struct {
    struct readv_words *words; /* of both ranks */
    struct readv_words *mine, *theirs;
    struct readv_place other;
    long announced, read; /* by this rank */
} readv_state;

static void pair_version(void)
{
    struct utsname names;
    if (uname(&names) != 0)
        peer_fail("uname", strerror(errno));
    printf("%.*s\n", (int)strspn(names.release, "0123456789."), names.release);
}

static void pair_share(void)
{
    void *words = mmap(NULL, 2 * sizeof *readv_state.words, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (words == MAP_FAILED)
        peer_fail("mmap", strerror(errno));
    readv_state.words = words;
}

static void pair_open(struct peer *peer)
{
    readv_state.mine = &readv_state.words[peer->rank];
    readv_state.theirs = &readv_state.words[1 - peer->rank];
    /* Where only parents may read, this rank lets the other one do so. */
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
}

static void pair_close(void)
{
}

static void pair_use(struct peer *peer)
{
    struct readv_place own = {.pid = getpid(), .send = peer->send};
    pair_tell(&own, sizeof own);
    pair_hear(&readv_state.other, sizeof readv_state.other);
}

static void pair_forget(void)
{
}

static void pair_poll(void)
{
}

/* Waits until a count of the other rank has come this far. Acquires what it did before. */
static inline void await(atomic_long *count, long until)
{
    while (atomic_load_explicit(count, memory_order_acquire) < until)
        pair_hint();
}

static inline void announce(int messages)
{
    readv_state.announced += messages;
    atomic_store_explicit(&readv_state.mine->announced, readv_state.announced,
                          memory_order_release);
}

/* Reads the other rank's next messages, and says so. */
static inline void read_messages(const struct peer *peer, int messages)
{
    size_t at = 0;
    await(&readv_state.theirs->announced, readv_state.read + messages);
    for (int i = 0; i < messages; i++, at = peer_next(peer, at)) {
        struct iovec to = {peer->receive + at, peer->bytes};
        struct iovec from = {readv_state.other.send + at, peer->bytes};
        ssize_t got = process_vm_readv(readv_state.other.pid, &to, 1, &from, 1, 0);
        if (got < 0 && errno == ESRCH) /* It has ended between its announcement and this read. */
            pair_lost();
        if (got != (ssize_t)peer->bytes)
            peer_fail("process_vm_readv", got < 0 ? strerror(errno) : "it has read less");
    }
    readv_state.read += messages;
    atomic_store_explicit(&readv_state.mine->read, readv_state.read, memory_order_release);
}

static inline void ping_pong(struct peer *peer, long rounds)
{
    for (long round = 0; round < rounds; round++) {
        if (peer->starts)
            announce(1);
        read_messages(peer, 1);
        if (!peer->starts)
            announce(1);
    }
    /* The last answer has been read. */
    await(&readv_state.theirs->read, readv_state.announced);
}

/* A window of messages in one direction. That they have been read is the answer. */
static inline void one_way(struct peer *peer, long rounds)
{
    for (long round = 0; round < rounds; round++) {
        if (peer->starts) {
            announce(peer->window);
            await(&readv_state.theirs->read, readv_state.announced);
        } else {
            read_messages(peer, peer->window);
        }
    }
}

/* A window in each direction at the same time. */
static inline void both_ways(struct peer *peer, long rounds)
{
    for (long round = 0; round < rounds; round++) {
        announce(peer->window);
        read_messages(peer, peer->window);
        await(&readv_state.theirs->read, readv_state.announced);
    }
}

int main(int argc, char **argv)
{
    static const struct peer_program program = PATTERN;
    return pair_main(argc, argv, &program);
}
