/* A mailbox: short messages from one rank to another one through shared memory, in order, with one
 * writer and one reader.
 *
 * A message has a cell, whose turn says that it is there. Up to MAILBOX_INLINE bytes lie in the
 * cell itself, so that a very short message is one cache line; more lie in a ring behind the cells.
 * A cell is free again when the message was delivered, and the reader may take messages out long
 * before that: the cells bound how many messages the reader keeps, and MAILBOX_LONG how many of
 * them are long.
 *
 * As with byte_ring.h each side keeps its counts privately and checks the other's: whatever that
 * stores, nothing outside the mailbox is read or written. Nobody sleeps here; the connection that
 * a mailbox belongs to wakes its reader. */
#ifndef TRANSPORT_SHM_MAILBOX_H
#define TRANSPORT_SHM_MAILBOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAILBOX_CELLS      64u     /* a power of two */
#define MAILBOX_INLINE     96u
#define MAILBOX_BYTES      65536u  /* of the longest message */
#define MAILBOX_RING       262144u /* bytes, a power of two ... */
#define MAILBOX_RING_SHORT 65536u  /* ... but short messages do with so many */
#define MAILBOX_SHORT      16384u  /* bytes; a message that is longer than this ... */
#define MAILBOX_LONG       4u      /* ... is sent while fewer messages are undelivered */

/* The envelope. The mailbox reads bytes and at; the rest is the writer's word. */
struct mail {
	uint32_t bytes, dtype;
	int32_t tag;
	uint32_t after; /* messages of the connection that go before this one */
	uint64_t at;    /* mailbox_send's: where it begins in the ring, ever more */
};

struct mailbox_cell {
	_Alignas(128) _Atomic uint64_t turn; /* the message's number + 1 */
	struct mail mail;
	uint8_t data[MAILBOX_INLINE];
};
_Static_assert(sizeof(struct mailbox_cell) == 128, "two cache lines, which are fetched together");

/* The part that both sides map. */
struct mailbox_shared {
	struct mailbox_cell cells[MAILBOX_CELLS];
	uint8_t ring[MAILBOX_RING];
	_Alignas(128) _Atomic uint64_t delivered; /* messages; this and taken are the reader's */
	_Atomic uint64_t taken;                   /* bytes of the ring */
};

struct mailbox_writer {
	struct mailbox_shared *shared;
	uint64_t sent, written;    /* messages, bytes of the ring */
	uint64_t delivered, taken; /* as last seen */
	uint64_t begun;            /* where in the ring, when that was empty */
	bool is_broken;            /* the other side stored what cannot be */
};

struct mailbox_reader {
	struct mailbox_shared *shared;
	uint64_t taken, read; /* messages, bytes of the ring */
	uint64_t delivered;
	bool is_broken;
};

/* False: there is no room. mail->bytes <= MAILBOX_BYTES. */
bool mailbox_send(struct mailbox_writer *w, const struct mail *mail, const void *data);

/* Whether there is a next message. The load pairs with the store in mailbox_send: a reader that
 * says that it sleeps, and then finds nothing, is woken. */
static inline bool mailbox_has(const struct mailbox_reader *r)
{
	return atomic_load(&r->shared->cells[r->taken % MAILBOX_CELLS].turn) == r->taken + 1 &&
	       !r->is_broken;
}
/* The envelope of the next message, which stays. False: there is none. */
bool mailbox_peek(struct mailbox_reader *r, struct mail *mail);
/* Takes out the message of that envelope, which was peeked. */
void mailbox_take(struct mailbox_reader *r, const struct mail *mail, void *data);
/* Counts one message that was taken as delivered; its cell is free. */
static inline void mailbox_deliver(struct mailbox_reader *r)
{
	/* Partner: mailbox_refresh. The cell was read. */
	atomic_store_explicit(&r->shared->delivered, ++r->delivered, memory_order_release);
}

#endif
