/* A mailbox: short messages from one rank to another through shared memory, in order, with one
 * writer and one reader.
 *
 * Each message occupies a cell. Up to MAILBOX_INLINE_BYTES of data lie in the cell, so that a very
 * short message is one cache line; longer data lie in a ring behind the cells. The reader takes a
 * message when it copies it out, and delivers it when a recv has it. Delivery frees the cell, so
 * the cells bound how many messages the reader keeps, and MAILBOX_LONG_MAX how many are long.
 *
 * As in byte_ring.h each side keeps its own counts privately and checks the other's: no value that
 * a peer stores makes this side access memory outside the mailbox. Nothing here sleeps; the
 * connection that a mailbox belongs to wakes its reader. */
#ifndef TRANSPORT_SHM_MAILBOX_H
#define TRANSPORT_SHM_MAILBOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAILBOX_CELLS         64u     /* undelivered messages at most; a power of two */
#define MAILBOX_INLINE_BYTES  96u     /* a message up to this length lies in its cell */
#define MAILBOX_MESSAGE_BYTES 65536u  /* the longest message */
#define MAILBOX_RING_BYTES    262144u /* a power of two */
/* Messages of up to SHORT_BYTES use only the first SHORT_RING_BYTES of the ring. A longer one is
 * accepted only while fewer than LONG_MAX messages, of any length, are undelivered. */
#define MAILBOX_SHORT_BYTES      16384u
#define MAILBOX_SHORT_RING_BYTES 65536u
#define MAILBOX_LONG_MAX         4u

/* The header of a message. The mailbox uses, and checks, only bytes and ring_at. */
struct mail {
	uint32_t bytes, dtype;
	int32_t tag;
	uint32_t after;   /* EAGER and REQUEST headers that were sent before this message */
	uint64_t ring_at; /* set by mailbox_send: its place in the ring; never wraps       */
};

struct mailbox_cell {
	_Alignas(128) _Atomic uint64_t turn; /* 1 + the number of the message in it */
	struct mail mail;
	uint8_t data[MAILBOX_INLINE_BYTES];
};
_Static_assert(sizeof(struct mailbox_cell) == 128, "two cache lines, which are fetched together");

/* The part that both sides map. */
struct mailbox_shared {
	struct mailbox_cell cells[MAILBOX_CELLS];
	uint8_t ring[MAILBOX_RING_BYTES];
	_Alignas(128) _Atomic uint64_t delivered; /* messages. The reader writes these two */
	_Atomic uint64_t ring_taken;              /* bytes */
};

struct mailbox_writer {
	struct mailbox_shared *shared;
	uint64_t sent, ring_written;    /* messages, bytes */
	uint64_t delivered, ring_taken; /* as last seen */
	uint64_t ring_begun; /* the place of the first message since the ring was last empty */
	bool is_broken;      /* the other side stored what cannot be */
};

struct mailbox_reader {
	struct mailbox_shared *shared;
	uint64_t taken, ring_taken; /* messages, bytes */
	uint64_t delivered;
	bool is_broken;
};

/* False: there is no room. mail->bytes <= MAILBOX_MESSAGE_BYTES. */
bool mailbox_send(struct mailbox_writer *w, const struct mail *mail, const void *data);

/* Whether there is a next message. The load pairs with the store in mailbox_send: a reader that
 * says that it sleeps, and then finds nothing, is woken. */
static inline bool mailbox_has(const struct mailbox_reader *r)
{
	return atomic_load(&r->shared->cells[r->taken % MAILBOX_CELLS].turn) == r->taken + 1 &&
	       !r->is_broken;
}
/* The header of the next message, which stays. False: there is none. */
bool mailbox_peek(struct mailbox_reader *r, struct mail *mail);
/* Takes out the message of that header, which was peeked. */
void mailbox_take(struct mailbox_reader *r, const struct mail *mail, void *data);
/* Counts one message that was taken as delivered; its cell is free. */
static inline void mailbox_deliver(struct mailbox_reader *r)
{
	/* Partner: mailbox_refresh. The cell was read. */
	atomic_store_explicit(&r->shared->delivered, ++r->delivered, memory_order_release);
}

#endif
