/* Two ranks that talk by libfabric alone: for libfabric what peer.h is for MPI.
 *
 * The program starts its second rank itself. Both ranks open an endpoint with tagged messages,
 * and tell each other its address through a pair of sockets.
 *
 * The environment selects the network:
 * - LIBFABRIC_PROVIDER is the provider, in full or only one layer of a layered provider.
 * - LIBFABRIC_DOMAIN is the provider's domain, such as the interface lo.
 * - LIBFABRIC_ADDRESS is the address of this side.
 * - LIBFABRIC_WAIT=fd requests completion queues on which a rank can sleep, which costs some
 *   providers time.
 * - LIBFABRIC_WAY says how a message of the pattern `latency` travels: as a tagged message into the
 *   buffer (unset); `copied`, as one into other memory, from where the receiver copies it; or `read`,
 *   as an announcement, a read by the receiver, and an answer that it is done. A layer that matches
 *   by itself can do only the latter two.
 * - LIBFABRIC_PAUSE=N gives the processor N hints after each poll that finds nothing: polls and
 *   sends may need the same lock.
 *
 * `PROGRAM --version` prints the version of the library.
 */
#ifndef PORTOLAN_FABRIC_H
#define PORTOLAN_FABRIC_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_setaffinity */
#endif
#include <limits.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
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

/* Memory that the provider may use while an operation is under way. */
typedef struct fi_context2 peer_request;

#include "sampling.h"

enum { NAME = 512, BATCH = 16 };

/* After so many polls that find nothing, a rank looks whether the other one is still there. */
enum { PATIENCE = 8192 };

enum way { TAGGED, COPIED, READ };

/* Where a buffer of the other rank lies. */
struct fabric_place {
    uint64_t address, key;
};

/* The state of one rank. */
struct fabric {
    enum way way;
    int socket; /* to the other rank */
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_ep *ep;
    struct fid_cq *cq;
    struct fid_av *av;
    fi_addr_t partner;
    struct fid_mr *regions[2]; /* of the buffers, where the provider wants that */
    void *send_desc, *receive_desc;
    struct fabric_place place; /* of the send buffer, if it is read */
    peer_request answer[1];    /* for messages outside of a window */
    long sent, received;       /* number of completed operations */
    long pause;                /* hints after a poll that finds nothing */
    long idle;                 /* polls that found nothing */
};

static struct fabric fabric;

static void peer_fail(const char *what, const char *argument)
{
    fprintf(stderr, "%s: %s\n", what, argument);
    exit(2);
}

static inline void fabric_check(const char *what, long result)
{
    if (result < 0)
        peer_fail(what, fi_strerror((int)-result));
}

/* Tells the processor that this rank only waits. */
static inline void fabric_hint(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

/* Ends this rank if the other one has ended: most providers do not tell. */
static void fabric_look(void)
{
    char word;
    if (recv(fabric.socket, &word, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
        peer_fail("the other rank", "is not there any more");
}

/* What a rank does after a poll that found nothing. */
static inline void fabric_rest(void)
{
    if (++fabric.idle % PATIENCE == 0)
        fabric_look();
    for (long hint = 0; hint < fabric.pause; hint++)
        fabric_hint();
}

/* Takes the completions that have arrived. */
static inline void fabric_poll(void)
{
    struct fi_cq_msg_entry batch[BATCH];
    ssize_t count = fi_cq_read(fabric.cq, batch, BATCH);
    for (ssize_t at = 0; at < count; at++) {
        if (batch[at].flags & FI_RECV)
            fabric.received++;
        else
            fabric.sent++;
    }
    if (count == -FI_EAVAIL) {
        struct fi_cq_err_entry error = {0};
        fi_cq_readerr(fabric.cq, &error, 0);
        peer_fail("an operation failed", fi_strerror(error.err));
    }
    if (count != -FI_EAGAIN)
        fabric_check("reading completions failed", count);
    else
        fabric_rest();
}

/* Repeats a call while the provider returns FI_EAGAIN, and polls in between. */
#define FABRIC_TRY(call)                                                                                               \
    do {                                                                                                               \
        ssize_t result;                                                                                                \
        while ((result = (call)) == -FI_EAGAIN)                                                                        \
            fabric_poll();                                                                                             \
        fabric_check(#call, result);                                                                                   \
    } while (0)

/* Starts a send. An injected send is complete at once, and is counted as such. */
static inline void fabric_send(const void *from, size_t bytes, uint64_t tag, peer_request *request)
{
    if (bytes <= fabric.info->tx_attr->inject_size) {
        FABRIC_TRY(fi_tinject(fabric.ep, from, bytes, fabric.partner, tag));
        fabric.sent++;
    } else {
        FABRIC_TRY(fi_tsend(fabric.ep, from, bytes, fabric.send_desc, fabric.partner, tag, request));
    }
}

static inline void fabric_receive(void *to, size_t bytes, uint64_t tag, peer_request *request)
{
    FABRIC_TRY(fi_trecv(fabric.ep, to, bytes, fabric.receive_desc, fabric.partner, tag, 0, request));
}

/* Waits until this many sends and receives are complete. */
static inline void fabric_wait(long sent, long received)
{
    while (fabric.sent < sent || fabric.received < received)
        fabric_poll();
}

/* Exchanges a few bytes through the socket, and polls the fabric meanwhile. */
static void fabric_tell(const void *bytes, size_t len)
{
    if (send(fabric.socket, bytes, len, MSG_NOSIGNAL) != (ssize_t)len)
        peer_fail("the other rank", "is not there any more");
}

static void fabric_hear(void *bytes, size_t len)
{
    ssize_t got;
    while ((got = recv(fabric.socket, bytes, len, MSG_DONTWAIT)) < 0) {
        if (fabric.cq)
            fabric_poll();
        sched_yield();
    }
    if (got != (ssize_t)len)
        exit(2); /* The other rank has said why. */
}

static enum way fabric_way(void)
{
    const char *way = getenv("LIBFABRIC_WAY");
    if (!way || strcmp(way, "tagged") == 0)
        return TAGGED;
    if (strcmp(way, "copied") == 0)
        return COPIED;
    if (strcmp(way, "read") != 0)
        peer_fail("LIBFABRIC_WAY is none of tagged, copied, read", way);
    return READ;
}

static char *peer_allocate(struct peer *peer, int direction, int fill)
{
    (void)peer, (void)direction, (void)fill;
    peer_fail("libfabric allocates no memory", "leave ALLOC 0");
    return NULL;
}

static void peer_gather(struct peer *peer)
{
    char word = 0;
    (void)peer;
    fabric_tell(&word, 1);
    fabric_hear(&word, 1);
}

static long peer_agree(struct peer *peer, long number)
{
    if (peer->rank == 0)
        fabric_tell(&number, sizeof number);
    else
        fabric_hear(&number, sizeof number);
    return number;
}

static double peer_clock(void)
{
    return peer_monotonic();
}

/* Finds the provider. */
static struct fi_info *fabric_choose(void)
{
    const char *provider = getenv("LIBFABRIC_PROVIDER"), *domain = getenv("LIBFABRIC_DOMAIN");
    const char *address = getenv("LIBFABRIC_ADDRESS");
    struct fi_info *hints = fi_allocinfo(), *info = NULL;
    if (!hints)
        peer_fail("no memory", "for a description");
    hints->caps = FI_TAGGED | (fabric.way == READ ? FI_RMA : 0);
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
    hints->fabric_attr->prov_name = provider ? strdup(provider) : NULL;
    hints->domain_attr->name = domain ? strdup(domain) : NULL;
    fabric_check("there is no such provider",
                 fi_getinfo(FI_VERSION(1, 17), address, NULL, address ? FI_SOURCE : 0, hints, &info));
    fi_freeinfo(hints);
    return info;
}

/* Opens an endpoint, and exchanges addresses with the other rank. */
static void fabric_open(void)
{
    fabric.way = fabric_way();
    fabric.info = fabric_choose();
    const char *wait = getenv("LIBFABRIC_WAIT"), *pause = getenv("LIBFABRIC_PAUSE");
    fabric.pause = pause ? atol(pause) : 0;
    int sleeps = wait && strcmp(wait, "fd") == 0;
    struct fi_cq_attr queue = {.size = 1024,
                               .format = FI_CQ_FORMAT_MSG,
                               .wait_obj = sleeps ? FI_WAIT_FD : FI_WAIT_NONE};
    struct fi_av_attr vector = {.type = fabric.info->domain_attr->av_type, .count = 2};
    if (vector.type == FI_AV_UNSPEC)
        vector.type = FI_AV_MAP;
    fabric_check("fi_fabric", fi_fabric(fabric.info->fabric_attr, &fabric.fabric, NULL));
    fabric_check("fi_domain", fi_domain(fabric.fabric, fabric.info, &fabric.domain, NULL));
    fabric_check("fi_cq_open", fi_cq_open(fabric.domain, &queue, &fabric.cq, NULL));
    fabric_check("fi_av_open", fi_av_open(fabric.domain, &vector, &fabric.av, NULL));
    fabric_check("fi_endpoint", fi_endpoint(fabric.domain, fabric.info, &fabric.ep, NULL));
    fabric_check("fi_ep_bind", fi_ep_bind(fabric.ep, &fabric.av->fid, 0));
    fabric_check("fi_ep_bind", fi_ep_bind(fabric.ep, &fabric.cq->fid, FI_TRANSMIT | FI_RECV));
    fabric_check("fi_enable", fi_enable(fabric.ep));

    char mine[NAME] = {0}, other[NAME];
    size_t len = sizeof mine;
    fabric_check("fi_getname", fi_getname(&fabric.ep->fid, mine, &len));
    fabric_tell(mine, sizeof mine);
    fabric_hear(other, sizeof other);
    if (fi_av_insert(fabric.av, other, 1, &fabric.partner, 0, NULL) != 1)
        peer_fail("fi_av_insert", "it does not take the other rank's address");
}

/* Registers the buffers if the provider requires it, or they are read; fabric_forget undoes that. */
static void fabric_register(struct peer *peer)
{
    if (!(fabric.info->domain_attr->mr_mode & FI_MR_LOCAL) && fabric.way != READ)
        return;
    char *buffers[2] = {peer->send, peer->receive};
    uint64_t access[2] = {FI_SEND, FI_RECV};
    if (fabric.way == READ) {
        access[0] |= FI_REMOTE_READ;
        access[1] |= FI_READ;
    }
    for (int at = 0; at < 2; at++)
        fabric_check("fi_mr_reg",
                     fi_mr_reg(fabric.domain, buffers[at], peer->area, access[at], 0,
                               (uint64_t)at + 1, 0, &fabric.regions[at], NULL));
    fabric.send_desc = fi_mr_desc(fabric.regions[0]);
    fabric.receive_desc = fi_mr_desc(fabric.regions[1]);
    if (fabric.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR)
        fabric.place.address = (uint64_t)(uintptr_t)peer->send;
    fabric.place.key = fi_mr_key(fabric.regions[0]);
}

static void fabric_forget(void)
{
    for (int at = 0; at < 2; at++) {
        if (fabric.regions[at])
            fi_close(&fabric.regions[at]->fid);
        fabric.regions[at] = NULL;
    }
}

static void fabric_close(void)
{
    fi_close(&fabric.ep->fid);
    fi_close(&fabric.av->fid);
    fi_close(&fabric.cq->fid);
    fi_close(&fabric.domain->fid);
    fi_close(&fabric.fabric->fid);
    fi_freeinfo(fabric.info);
}

static void fabric_sample(struct peer *peer, const struct peer_program *program, const char *plan)
{
    long planned, warm_up, rounds = 1;
    if (!peer_plan(peer, program, plan, &planned, &warm_up))
        return;
    fabric_register(peer);
    double seconds = peer_rounds(peer, program, planned, warm_up, &rounds);
    if (peer->rank == 0)
        peer_say(peer->plan, program->value(peer, seconds, rounds), rounds);
    peer_gather(peer);
    fabric_forget();
    free(peer->send);
    free(peer->receive);
}

/* The main function of each program. */
static int fabric_main(int argc, char **argv, const struct peer_program *program)
{
    struct peer peer = {.size = 2};
    int sockets[2];
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("%u.%u\n", FI_MAJOR(fi_version()), FI_MINOR(fi_version()));
        return 0;
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) != 0)
        peer_fail("socketpair", "there is no pair of sockets");
    pid_t child = fork();
    if (child < 0)
        peer_fail("fork", "the second rank cannot be started");
    peer.rank = child == 0;
    if (peer.rank == 1)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    fabric.socket = sockets[peer.rank];
    close(sockets[1 - peer.rank]);
    peer_place(peer.rank);
    peer_arguments(&peer, argc, argv);
    fabric_open();
    for (int at = PLANS; at < argc; at++)
        fabric_sample(&peer, program, argv[at]);
    free(peer.requests);
    fabric_close();
    /* Waiting for the second rank adds its processor time to this program's, which `portolan
     * bench` reads. */
    int status = 0;
    if (peer.rank == 0 && waitpid(child, &status, 0) != child)
        peer_fail("waitpid", "the second rank is lost");
    return status == 0 ? 0 : 2;
}

#endif
