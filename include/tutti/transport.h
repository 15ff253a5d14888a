/* A transport: how bytes get from one rank to another.
 *
 * A transport is a table of functions (struct tutti_transport), one constant per kind of wire. It
 * knows nothing of collectives. Everything it does for one rank of one communicator hangs off an
 * endpoint; an ordered pair of byte streams to one peer is a conn; one posted send or receive is an
 * io. Third parties build a transport as a shared object that exports
 *
 *     const struct tutti_transport *tutti_transport_plugin(void);
 *
 * and name it in TUTTI_TRANSPORT_PLUGIN=path. docs/transports.md says how to write one.
 *
 * Rules, for every transport:
 *   threads    the functions of one endpoint and its conns are called by one thread at a time (the
 *              engine's lock sees to it); different endpoints may be used at once.
 *   blocking   open, close and destroy may block for a moment; nothing else may, ever.
 *   calls      the library holds locks when it calls these functions: they must call nothing of
 *              tutti.h, and must return (see callbacks in tutti.h).
 *   order      a conn is two independent FIFO streams. The n-th send of one end meets the n-th recv
 *              of the other. Completions of one direction arrive in the order of posting.
 *   sizes      both ends of a message name the same bytes and the same tag; where they differ, the
 *              receiver's io ends in TUTTI_ERR_MISMATCH. An io of 0 bytes is a message, too.
 *   buffering  a send may complete before the peer has posted its recv, or only after; callers may
 *              rely on neither. A recv never has to wait for this rank's own sends.
 *   failure    when a conn fails, every io posted on it, and every later one, completes with the
 *              same status, and conn->error holds one message that names the peer. A failed conn
 *              touches no buffer. Its other end fails too, with PEER, also if it connects later;
 *              likewise that of a conn that was closed before both ends had connected.
  *   ownership  an io and its buffer belong to the transport from send/recv until the io is on the
 *              done list, or until close(conn) returns.
 *   remains    a process that is killed leaves no file, folder or name behind.
 */
#ifndef TUTTI_TRANSPORT_H
#define TUTTI_TRANSPORT_H

#include <tutti/tutti.h>

#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

#define TUTTI_TRANSPORT_ABI 4
#define TUTTI_ADDRESS_BYTES 256     /* the longest address an endpoint may have */
#define TUTTI_KEY_BYTES 32

/* Kinds of memory. A mask of kinds has bit 1 << kind. */
enum { TUTTI_MEMORY_HOST = 0, TUTTI_MEMORY_CUDA = 1, TUTTI_MEMORY_KINDS = 8 };

struct tutti_transport;
struct tutti_conn;

/* A part of a message that lies in several places. */
struct tutti_piece {
	void *buf;
	size_t bytes;
};

/* One posted operation: a send, a receive, or an operation of a memory kind. Its bytes are one
 * message, whether they lie at buf or, when pieces is not NULL, one after the other in so many
 * pieces (none of them empty, bytes in all); the peer need not cut it alike. tutti_io_rewind,
 * _here and _moved walk through either. */
struct tutti_io {
	struct tutti_io *next;      /* the transport's queue, then the done list               */
	void *buf;                  /* read by send, written by recv                           */
	size_t bytes;
	const struct tutti_piece *pieces;   /* the poster's, until the io is done; or NULL      */
	uint32_t piece_count;
	uint32_t tag;               /* the same on both ends: a fingerprint of the call        */
	tutti_status status;        /* written before the io goes on the done list             */
	struct tutti_conn *conn;    /* written by send and recv                                */
	void *map;                  /* what map returned for buf's memory, or NULL             */
	size_t moved;               /* the transport's own: bytes through so far ...           */
	uint32_t piece;             /* ... and with pieces the one that it is in,              */
	size_t in_piece;            /* and how far. send and recv set all three to 0           */
	int asks;                   /* without a map, where the transport has map: 1 when the   */
	                            /* other end may have one                                  */
};

static inline void tutti_io_rewind(struct tutti_io *io)
{
	io->moved = io->in_piece = 0;
	io->piece = 0;
}

/* Where the io's next byte lies, and how many may be moved there at once: 0 at the end. */
static inline void *tutti_io_here(const struct tutti_io *io, size_t *bytes)
{
	if (!io->pieces) {
		*bytes = io->bytes - io->moved;
		return (char *)io->buf + io->moved;
	}
	if (io->piece == io->piece_count) {
		*bytes = 0;
		return NULL;
	}
	*bytes = io->pieces[io->piece].bytes - io->in_piece;
	return (char *)io->pieces[io->piece].buf + io->in_piece;
}

/* So many bytes more have gone through; they may span pieces. */
static inline void tutti_io_moved(struct tutti_io *io, size_t bytes)
{
	io->moved += bytes;
	while (io->pieces && bytes > 0) {
		size_t rest = io->pieces[io->piece].bytes - io->in_piece;
		size_t step = bytes < rest ? bytes : rest;
		io->in_piece += step;
		bytes -= step;
		if (io->in_piece == io->pieces[io->piece].bytes) {
			io->piece++;
			io->in_piece = 0;
		}
	}
}

/* The next bytes of a send, no more than it still has, are copied to to. */
static inline void tutti_io_copy_out(struct tutti_io *io, void *to, size_t bytes)
{
	for (size_t here; bytes > 0; bytes -= here) {
		const void *from = tutti_io_here(io, &here);
		here = here < bytes ? here : bytes;
		memcpy(to, from, here);
		tutti_io_moved(io, here);
		to = (char *)to + here;
	}
}

/* The next bytes of a receive, no more than it still lacks, come from from. */
static inline void tutti_io_copy_in(struct tutti_io *io, const void *from, size_t bytes)
{
	for (size_t here; bytes > 0; bytes -= here) {
		void *to = tutti_io_here(io, &here);
		here = here < bytes ? here : bytes;
		memcpy(to, from, here);
		tutti_io_moved(io, here);
		from = (const char *)from + here;
	}
}

/* For a transport that has both ends at hand: what from still has goes to where to is. */
static inline void tutti_io_copy(struct tutti_io *to, struct tutti_io *from)
{
	size_t room, left;
	void *dst, *src;

	while ((dst = tutti_io_here(to, &room)), (src = tutti_io_here(from, &left)),
	       room > 0 && left > 0) {
		size_t bytes = room < left ? room : left;
		memcpy(dst, src, bytes);
		tutti_io_moved(to, bytes);
		tutti_io_moved(from, bytes);
	}
}

/* Completions are data: a FIFO of finished ios. */
struct tutti_done {
	struct tutti_io *head, **tail;
};

static inline void tutti_done_init(struct tutti_done *done)
{
	done->head = NULL;
	done->tail = &done->head;
}

static inline void tutti_done_push(struct tutti_done *done, struct tutti_io *io,
                                   tutti_status status)
{
	io->status = status;
	io->next = NULL;
	*done->tail = io;
	done->tail = &io->next;
}

static inline struct tutti_io *tutti_done_pop(struct tutti_done *done)
{
	struct tutti_io *io = done->head;
	if (io && !(done->head = io->next))
		done->tail = &done->head;
	return io;
}

/* The channel of point-to-point messages, whose peer may be busy elsewhere at any time: its conns
 * wait for it without a bound. A call that waits for their messages has a deadline of its own. */
#define TUTTI_CHANNEL_PATIENT 1

struct tutti_endpoint_config {
	int rank, size;                     /* in the communicator                             */
	const char *host_id;                /* equal for ranks that count as one machine: boot, */
	                                    /* network namespace and TUTTI_HOST_ID, no user    */
	uint64_t comm_id[2];                /* the same on all ranks, unguessable              */
	uint8_t key[TUTTI_KEY_BYTES];       /* proves membership of the job to its peers       */
	const char *address;                /* a local address to prefer, or NULL              */
	int timeout_ms;                     /* bound on reaching a peer's endpoint, but on     */
	                                    /* TUTTI_CHANNEL_PATIENT                           */
	void *context;                      /* sim: the simulated world                        */
	int checksum;                       /* 1: tcp's messages carry one; alike on all ranks */
	int reconnect;                      /* tcp, when a connection breaks: 0 it has failed; */
	                                    /* 1 it is made again but on loopback; 2 always.   */
	                                    /* Alike on all ranks, too                         */
	int reconnect_ms, reconnect_tries;  /* for how long and how often that is tried        */
	int tls;                            /* 1: tcp's bytes go through TLS; alike on all ranks */
	int gid;                            /* verbs: 0 the best of each port, else index + 1  */
	const char *devices;                /* verbs: "mlx5_0,mlx5_1:2" only these; NULL: all  */
	int is_named;                       /* 1: the job has named its transports by a list,  */
	                                    /* and this may be one of them (not "^shm")        */
};

/* Bases: a transport's own structs begin with these. */
struct tutti_endpoint {
	const struct tutti_transport *transport;
	size_t address_bytes;
	uint8_t address[TUTTI_ADDRESS_BYTES];  /* handed to every peer as it is                */
};

struct tutti_conn {
	struct tutti_endpoint *endpoint;
	int peer, channel;
	tutti_status status;                /* TUTTI_OK until it fails                         */
	char error[240];                    /* then one message                                */
	char where[64];                     /* the peer's end of the wire, for messages, once  */
	                                    /* it is there; or ""                              */
};

struct tutti_transport {
	uint32_t abi;                       /* TUTTI_TRANSPORT_ABI                             */
	const char *name;
	uint32_t kinds;                     /* memory that send reads and recv writes in place */

	/* Makes this rank's endpoint: listeners, the address. Errors: SYSTEM, MEMORY,
	 * UNSUPPORTED; they fail the communicator. A transport that cannot work here, where
	 * others may, returns OK and an address of 0 bytes: no rank reaches it. (Those of this
	 * library leave the reason by fail(), core/status.h, in both cases.) */
	tutti_status (*open)(struct tutti_endpoint **endpoint,
	                     const struct tutti_endpoint_config *config);
	/* How well peer can be reached: 0 not at all; the larger the better (MB/s, roughly). Both
	 * ends of a pair must get the same answer from each other's addresses. */
	int (*reach)(struct tutti_endpoint *endpoint, int peer, const uint8_t *address,
	             size_t address_bytes);
	/* Begins to connect and returns at once; ios may be posted at once and flow when the wire
	 * is there. Both ends call it, in any order and however far apart; at most once per (peer,
	 * channel). Until the peer does, what is posted waits, and no other conn or channel is held
	 * up. timeout_ms bounds how long it may take to reach the peer's endpoint, not how long the
	 * peer takes to call connect. A peer whose endpoint is gone ends the conn with PEER. */
	tutti_status (*connect)(struct tutti_endpoint *endpoint, int peer, int channel,
	                        const uint8_t *address, size_t address_bytes,
	                        struct tutti_conn **conn);
	void (*send)(struct tutti_conn *conn, struct tutti_io *io);
	void (*recv)(struct tutti_conn *conn, struct tutti_io *io);
	/* Moves what can be moved, appends what finished; 0 when nothing happened. */
	int (*progress)(struct tutti_endpoint *endpoint, struct tutti_done *done);
	/* Forgets what is posted (those ios appear on no done list) and frees the conn. Sends
	 * that had completed still reach a peer that receives them. NULL is fine. */
	void (*close)(struct tutti_conn *conn);
	void (*destroy)(struct tutti_endpoint *endpoint);   /* after its conns; NULL is fine   */

	/* Optional from here on; NULL where a transport has none. */

	/* A descriptor that turns readable, after arm returned 0, when progress has work again:
	 * what a thread with nothing to do sleeps on; the same until destroy. -1: no descriptor is
	 * to be had, and arm returns 1 until there is one, so that its caller looks again. arm
	 * also returns 1 when there is work already. Other threads may use the endpoint meanwhile:
	 * a post of theirs need not make it readable, since its thread makes progress or wakes the
	 * sleeper. */
	int (*event_fd)(struct tutti_endpoint *endpoint);
	int (*arm)(struct tutti_endpoint *endpoint);
	/* Registers memory of a kind that is not in kinds, so that ios may carry io->map: those lie
	 * in it as a whole, and a receive has no pieces. What a mapped send carries may be received
	 * into any memory; but into mapped memory only what is mapped itself, or asks (else
	 * MISMATCH). It stays until unmap, which comes behind the last such io. When a receive is
	 * done the wire has written all of it; whether work of a GPU sees that at once is for its
	 * driver to say. UNSUPPORTED: there is no way from this wire to this memory. bytes 0: maps
	 * nothing, and says whether memory of this kind can be expected to be mapped. */
	tutti_status (*map)(struct tutti_endpoint *endpoint, int kind, void *ptr, size_t bytes,
	                    void **map);
	void (*unmap)(struct tutti_endpoint *endpoint, void *map);
	/* For a rank that is in no call: does what its peers need of it all the same, such as
	 * making a broken connection again. Completes nothing; progress hands out what ended
	 * meanwhile. Returns 1 when there is more to do at once, else 0: not before *fd is
	 * readable (-1: never). in_doubt: 1 when a completed send may yet be lost; a rank that
	 * leaves goes on with mend. Both or neither. */
	int (*mend)(struct tutti_endpoint *endpoint, int *fd);
	int (*in_doubt)(struct tutti_endpoint *endpoint);
};

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
