/* Two ranks that talk by libfabric alone: both open an endpoint with tagged messages, and tell each
 * other its address.
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
#define _GNU_SOURCE /* pair.h needs it before any header */
#endif
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

/* Memory that the provider may use while an operation is under way. */
typedef struct fi_context2 peer_request;

#include "pair.h"

enum { NAME = 512, BATCH = 16 };

enum way { TAGGED, COPIED, READ };

/* Where a buffer of the other rank lies. */
struct fabric_place {
    uint64_t address, key;
};

/* The state of one rank. */
struct fabric {
    enum way way;
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
};

static struct fabric fabric;

static inline void fabric_check(const char *what, long result)
{
    if (result < 0)
        peer_fail(what, fi_strerror((int)-result));
}

/* What a rank does after a poll that found nothing. */
static inline void fabric_rest(void)
{
    for (long hint = 0; hint < fabric.pause; hint++)
        pair_hint();
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

static void pair_poll(void)
{
    if (fabric.cq)
        fabric_poll();
}

static void pair_share(void)
{
}

static void pair_version(void)
{
    printf("%u.%u\n", FI_MAJOR(fi_version()), FI_MINOR(fi_version()));
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
static void pair_open(struct peer *peer)
{
    (void)peer;
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
    pair_tell(mine, sizeof mine);
    pair_hear(other, sizeof other);
    if (fi_av_insert(fabric.av, other, 1, &fabric.partner, 0, NULL) != 1)
        peer_fail("fi_av_insert", "it does not take the other rank's address");
}

/* Registers the buffers if the provider requires it, or they are read; pair_forget undoes that. */
static void pair_use(struct peer *peer)
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

static void pair_forget(void)
{
    for (int at = 0; at < 2; at++) {
        if (fabric.regions[at])
            fi_close(&fabric.regions[at]->fid);
        fabric.regions[at] = NULL;
    }
}

static void pair_close(void)
{
    fi_close(&fabric.ep->fid);
    fi_close(&fabric.av->fid);
    fi_close(&fabric.cq->fid);
    fi_close(&fabric.domain->fid);
    fi_close(&fabric.fabric->fid);
    fi_freeinfo(fabric.info);
}

#endif
