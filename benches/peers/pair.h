/* Two ranks that talk without MPI: what they need besides their messages. For programs of two ranks
 * this is what peer.h is for those of MPI.
 *
 * The program starts its second rank itself. Both tell each other words through a pair of sockets.
 * When a rank ends too early, the other one does, too: the first by SIGCHLD, the second by
 * PR_SET_PDEATHSIG.
 *
 * A file that includes this must define `peer_request` before, and the functions declared below.
 */
#ifndef PORTOLAN_PAIR_H
#define PORTOLAN_PAIR_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_setaffinity, process_vm_readv */
#endif
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sampling.h"

/* The socket to the other rank. */
static int pair_socket;

/* Prints the version of what carries the messages. */
static void pair_version(void);
/* Called once, before the second rank is started. */
static void pair_share(void);
/* Called once on each rank, before the first size and behind the last one. */
static void pair_open(struct peer *peer);
static void pair_close(void);
/* Called on each rank before and after each size, when the buffers are there. */
static void pair_use(struct peer *peer);
static void pair_forget(void);
/* What a rank does while it waits for the other one's words. */
static void pair_poll(void);

static void peer_fail(const char *what, const char *argument)
{
    fprintf(stderr, "%s: %s\n", what, argument);
    exit(2);
}

#define PAIR_LOST "is not there any more"

/* Ends this rank because the other one has ended. */
static void pair_lost(void)
{
    peer_fail("the other rank", PAIR_LOST);
}

/* The process of the second rank, for the first one. */
static pid_t pair_second;

/* Handles the end of a process that the first rank has started: of the second rank, or of one that
 * a library has started. By a signal, because this rank may be within a library, waiting for a lock
 * in shared memory that the second one has taken with it. */
static void pair_child(int signal)
{
    static const char words[] = "the other rank: " PAIR_LOST "\n";
    siginfo_t info = {0};
    int before = errno;
    (void)signal;
    if (waitid(P_PID, (id_t)pair_second, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0 || (info.si_code == CLD_EXITED && info.si_status == 0)) {
        errno = before;
        return;
    }
    /* If this cannot be said, the status says it. */
    ssize_t said = write(STDERR_FILENO, words, sizeof words - 1);
    _exit(said < 0 ? 3 : 2);
}

/* Starts the second rank, whose end the first one then notices. Returns this rank's number. */
static int pair_start(void)
{
    struct sigaction action = {.sa_handler = pair_child, .sa_flags = SA_RESTART | SA_NOCLDSTOP};
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGCHLD);
    /* The handler needs to know which process it is. */
    sigprocmask(SIG_BLOCK, &ends, NULL);
    pair_second = fork();
    if (pair_second < 0)
        peer_fail("fork", "the second rank cannot be started");
    if (pair_second == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    else if (sigaction(SIGCHLD, &action, NULL) != 0)
        peer_fail("sigaction", "the end of the second rank would not be seen");
    sigprocmask(SIG_UNBLOCK, &ends, NULL);
    return pair_second == 0;
}

/* Tells the processor that this rank only waits. */
static inline void pair_hint(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

/* Exchanges a few bytes through the socket, and polls meanwhile. */
static void pair_tell(const void *bytes, size_t len)
{
    if (send(pair_socket, bytes, len, MSG_NOSIGNAL) != (ssize_t)len)
        pair_lost();
}

static void pair_hear(void *bytes, size_t len)
{
    ssize_t got;
    while ((got = recv(pair_socket, bytes, len, MSG_DONTWAIT)) < 0) {
        pair_poll();
        sched_yield();
    }
    if (got != (ssize_t)len)
        pair_lost();
}

static char *peer_allocate(struct peer *peer, int direction, int fill)
{
    (void)peer, (void)direction, (void)fill;
    peer_fail("there is no library that allocates memory", "leave ALLOC 0");
    return NULL;
}

static void peer_gather(struct peer *peer)
{
    char word = 0;
    (void)peer;
    pair_tell(&word, 1);
    pair_hear(&word, 1);
}

static long peer_agree(struct peer *peer, long number)
{
    if (peer->rank == 0)
        pair_tell(&number, sizeof number);
    else
        pair_hear(&number, sizeof number);
    return number;
}

static double peer_clock(void)
{
    return peer_monotonic();
}

static inline double one_way_time(const struct peer *peer, double seconds, long rounds)
{
    (void)peer;
    return seconds / (2.0 * (double)rounds) * 1e6;
}

static inline double bandwidth(const struct peer *peer, double seconds, long rounds)
{
    return (double)rounds * peer->window * (double)peer->bytes / seconds / 1e6;
}

static inline double both_bandwidths(const struct peer *peer, double seconds, long rounds)
{
    return 2.0 * bandwidth(peer, seconds, rounds);
}

static inline double rate(const struct peer *peer, double seconds, long rounds)
{
    return (double)rounds * peer->window / seconds;
}

/* The program defines ping_pong, one_way and both_ways. */
#define PATTERN_LATENCY {.run = ping_pong, .value = one_way_time}
#define PATTERN_BANDWIDTH {.run = one_way, .value = bandwidth}
#define PATTERN_BIBANDWIDTH {.run = both_ways, .value = both_bandwidths}
#define PATTERN_RATE {.run = one_way, .value = rate}

static void pair_sample(struct peer *peer, const struct peer_program *program, const char *plan)
{
    long planned, warm_up, rounds = 1;
    if (!peer_plan(peer, program, plan, &planned, &warm_up))
        return;
    pair_use(peer);
    double seconds = peer_rounds(peer, program, planned, warm_up, &rounds);
    if (peer->rank == 0)
        peer_say(peer->plan, program->value(peer, seconds, rounds), rounds);
    peer_gather(peer);
    pair_forget();
    free(peer->send);
    free(peer->receive);
}

/* The main function of each program. */
static int pair_main(int argc, char **argv, const struct peer_program *program)
{
    struct peer peer = {.size = 2};
    int sockets[2];
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        pair_version();
        return 0;
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) != 0)
        peer_fail("socketpair", "there is no pair of sockets");
    pair_share();
    peer.rank = pair_start();
    pair_socket = sockets[peer.rank];
    close(sockets[1 - peer.rank]);
    peer_place(peer.rank);
    peer_arguments(&peer, argc, argv);
    pair_open(&peer);
    for (int at = PLANS; at < argc; at++)
        pair_sample(&peer, program, argv[at]);
    free(peer.requests);
    pair_close();
    /* Waiting for the second rank adds its processor time to this program's, which `portolan
     * bench` reads. */
    int status = 0;
    if (peer.rank == 0 && waitpid(pair_second, &status, 0) != pair_second)
        peer_fail("waitpid", "the second rank is lost");
    return status == 0 ? 0 : 2;
}

#endif
