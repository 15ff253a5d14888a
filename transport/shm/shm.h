/* shm: a pair of byte rings between two ranks of one node. What the files of this folder share.
 *
 *     endpoint.c     the endpoint: its address, progress, sleeping, the table of functions
 *     connect.c      dialing the peer, accepting its connections; their events and deadlines
 *     conn.c         posted ios through the rings
 *     byte_ring.c    one ring of bytes, and the memory of a pair
 *     mailbox.c      short messages
 *     descriptors.c  what epoll watches
 *
 * A file calls only files that stand below it.
 *
 * Each endpoint listens on an abstract Unix socket. The higher rank of a pair dials and passes a
 * memfd with two rings; the lower rank dials as well, only to notice when the higher one leaves
 * before it has done so. A byte that comes back says that the endpoint has heard it, whether or not
 * it has connected yet; from then on there is no deadline. The socket stays open: its end
 * is the peer's end, and a byte on it wakes a sleeper. When a conn has failed, its socket and those
 * that ask for it again are closed, so that both ends fail. In a ring, a message is a frame of 16
 * bytes at a multiple of 64, and its payload. Beside the rings a pair has two mailboxes, which only
 * p2p knows (mail.h): no order holds between what goes through a mailbox and through its ring. */
#ifndef TRANSPORT_SHM_SHM_H
#define TRANSPORT_SHM_SHM_H

#include "core/admission.h"
#include "transport/shm/byte_ring.h"
#include "transport/shm/mail.h"

#include <tutti/transport.h>
#include <sys/queue.h>

#define SHM_RING_BYTES    ((size_t)256 << 10)   /* of one direction, while the world is small    */
#define SHM_RINGS_BYTES   ((size_t)8 << 20)     /* of all conns of a rank, were there one each;
						 * without mailboxes, of which pages that
						 * messages have lain in take memory             */
#define SHM_PIECE_BYTES   ((size_t)32 << 10)    /* a large message moves on by this much         */
#define SHM_PENDING       64                          /* connections before their hello           */
#define SHM_PENDING_MS    5000                        /* and how long they may take               */
#define SHM_ACCEPTED_MOST 16                    /* known ones a rank that wait for our connect */
#define SHM_BACKLOG       1024                  /* connections that wait for our accept           */
#define SHM_REDIAL_MS     1                     /* when the peer's backlog is full               */
#define SHM_LOOK_PASSES   32                    /* idle passes between two looks at the sockets  */

/* The kinds of descriptors in the epoll; its data points to a struct shm_watch. */
enum shm_watched { SHM_LISTENER, SHM_TIMER, SHM_ACCEPTED, SHM_CONN };

struct shm_watch {
	enum shm_watched kind;
	int fd;                         /* or -1                                                */
};

/* A hello asks for rings, whose memfd comes along, or to be told if the peer leaves first. */
enum shm_purpose { SHM_RINGS = 1, SHM_AWAIT = 2 };

#define SHM_MAGIC 0x31306d73u                       /* the form of the hello and of the frames   */

struct shm_hello {
	uint32_t magic;
	uint32_t purpose;
	int32_t from, to, channel;
	uint32_t reserved;
	uint64_t comm_id[2];
	uint64_t ring_bytes;
};

/* Where a conn stands. DIALING: the peer could not be dialled yet; WAITING: for the peer's rings;
 * ENDED: the peer is gone, what it left in the ring can still be received. */
enum shm_state { SHM_DIALING, SHM_WAITING, SHM_OPEN, SHM_ENDED, SHM_FAILED };

struct shm_conn {
	struct tutti_conn base;
	struct shm_watch watch;
	enum shm_state state;
	bool is_settled;                /* the peer's endpoint is there: no deadline, no timer   */
	bool peer_left;                 /* before there were rings                              */
	bool is_active;                 /* on the endpoint's list: has ios, and rings            */
	bool in_payload[2];             /* of the first send; of the first recv                  */
	struct shm_conn *next;
	LIST_ENTRY(shm_conn) active;
	uint64_t deadline_ns;           /* of settling                                           */
	char name[40];                  /* the peer's listener                                   */
	struct shared_memory *rings;
	struct byte_ring_writer out;
	struct byte_ring_reader in;
	struct mailbox_writer mail_out;
	struct mailbox_reader mail_in;
	struct tutti_done sends, recvs; /* posted                                                */
	struct tutti_io *mail_io;       /* done when the mailbox has a message; NULL: no one asks */
	uint32_t sent, received;        /* messages                                              */
	struct shm_ended *ended;
};

/* A conn that had failed, or never had rings, and has been closed: a peer that asks for it is told
 * so. */
struct shm_ended {
	struct shm_ended *next;
	int peer, channel;
};

/* An accepted socket that belongs to no conn yet. */
struct shm_accepted {
	struct shm_watch watch;
	struct shm_accepted *next;
	bool is_watched;                /* else it is looked at in turn: epoll took no more      */
	bool is_known;                  /* the hello came and is for us; the rest is from it     */
	enum shm_purpose purpose;
	int from, channel;
	struct shared_memory *rings;
	struct admission_entry pending; /* while not known                                       */
};

struct shm_endpoint {
	struct tutti_endpoint base;
	int rank, size, timeout_ms;
	uint64_t comm_id[2];
	size_t ring_bytes;
	int epoll_fd;
	struct shm_watch listener, timer;
	struct shm_conn *conns;
	LIST_HEAD(, shm_conn) active;
	struct shm_accepted *accepted, *closed;        /* closed: freed after a look            */
	struct shm_accepted *spare;     /* for the next connection that is accepted              */
	struct shm_ended *ended;
	bool has_failed;                /* a conn has, and greetings may wait for it            */
	int accepted_count, unsettled;  /* accepted_count: of known ones                        */
	struct admission pending;
	bool is_armed, is_timed;
	unsigned passes;
	struct tutti_done done;
};

extern const struct tutti_transport transport_shm;

/* endpoint.c: the peer's listener, when it is on this node. */
bool shm_address_read(const struct tutti_endpoint *endpoint, const uint8_t *address,
		      size_t address_bytes, char name[40]);

/* descriptors.c */
/* An endpoint that is not used has its listener alone: epoll and timer are made when they are
 * needed. */
tutti_status shm_epoll_open(struct shm_endpoint *endpoint);
bool shm_timer_open(struct shm_endpoint *endpoint);
tutti_status shm_watch_add(struct shm_endpoint *endpoint, struct shm_watch *watch);
void shm_watch_close(struct shm_endpoint *endpoint, struct shm_watch *watch);
/* Bytes that wait at a socket are taken. False: the other end is gone. */
bool shm_socket_drain(int fd, bool *is_anything);
void shm_ring_doorbell(int fd);

/* connect.c */
/* One look at all sockets and deadlines. Returns whether anything happened. */
bool shm_look(struct shm_endpoint *endpoint);
/* When the next look is due even though no socket has news; DEADLINE_NONE: never. */
uint64_t shm_due_ns(const struct shm_endpoint *endpoint);

void shm_connect_dial(struct shm_conn *conn);
/* accepted's socket and rings become conn's. */
void shm_accepted_adopt(struct shm_conn *conn, struct shm_accepted *accepted);
void shm_accepted_drop(struct shm_endpoint *endpoint, struct shm_accepted *accepted);
/* Frees those that were dropped: no event of them is held any more. */
void shm_accepted_free_closed(struct shm_endpoint *endpoint);
struct shm_accepted *shm_accepted_find(const struct shm_endpoint *endpoint, int from, int channel);
/* Closes those whose conn has failed here, so that their peers learn it. */
void shm_accepted_drop_ended(struct shm_endpoint *endpoint);

/* conn.c */
void shm_conn_settle(struct shm_conn *conn); /* the peer's endpoint is there */
void shm_conn_fail(struct shm_conn *conn, tutti_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4), cold));
void shm_conn_post(struct shm_conn *conn, struct tutti_io *io, bool is_send);
/* Moves what can be moved, a bounded amount. */
bool shm_conn_move(struct shm_conn *conn);
/* The rings are there; the peer's end of them is gone. */
void shm_conn_opened(struct shm_conn *conn);
void shm_conn_ended(struct shm_conn *conn);
/* Says to the peer that this side sleeps; then whether it may not, because there is work. */
void shm_conn_sleeps(struct shm_conn *conn, bool sleeps);
bool shm_conn_has_work(struct shm_conn *conn);
void shm_conn_deactivate(struct shm_conn *conn);
void shm_conn_await_mail(struct shm_conn *conn, struct tutti_io *io); /* see mail.h */

static inline struct shm_endpoint *shm_endpoint_of(const struct shm_conn *conn)
{
	return (struct shm_endpoint *)conn->base.endpoint;
}

static inline struct shm_accepted *shm_accepted_of(struct admission_entry *entry)
{
	return (struct shm_accepted *)((char *)entry - offsetof(struct shm_accepted, pending));
}

#endif
