/* See mailbox.h. */
#include "transport/shm/mailbox.h"

#include <assert.h>
#include <string.h>

static void mailbox_refresh(struct mailbox_writer *w)
{
	/* Acquire, partners: the stores in mailbox_deliver and mailbox_take. The reader's loads of
	 * what is going to be overwritten happen before. */
	uint64_t delivered = atomic_load_explicit(&w->shared->delivered, memory_order_acquire);
	uint64_t taken = atomic_load_explicit(&w->shared->taken, memory_order_acquire);

	if (delivered < w->delivered || delivered > w->sent || taken < w->taken ||
	    taken > w->written) {
		w->is_broken = true;
		return;
	}
	w->delivered = delivered;
	w->taken = taken;
}

static uint64_t mailbox_most(uint32_t bytes)
{
	return bytes > MAILBOX_SHORT ? MAILBOX_LONG : MAILBOX_CELLS;
}

/* A message lies in one piece, at a multiple of a cache line. The ring begins anew where it was
 * empty, as last seen: those lines and pages are in use already. */
static uint64_t mailbox_place(const struct mailbox_writer *w, uint32_t bytes)
{
	uint64_t at = (w->written + 63) & ~(uint64_t)63;
	uint32_t end = bytes > MAILBOX_SHORT ? MAILBOX_RING : MAILBOX_RING_SHORT;

	if (w->taken == w->written || at % MAILBOX_RING + bytes > end)
		at = (at + MAILBOX_RING - 1) & ~(uint64_t)(MAILBOX_RING - 1);
	return at;
}

static bool mailbox_has_room(const struct mailbox_writer *w, const struct mail *mail)
{
	if (w->sent - w->delivered >= mailbox_most(mail->bytes))
		return false;
	/* What was skipped when the ring began anew is no message's. */
	uint64_t used_from = w->taken > w->begun ? w->taken : w->begun;
	return mail->bytes <= MAILBOX_INLINE || w->taken == w->written ||
	       mail->at + mail->bytes - used_from <= MAILBOX_RING;
}

/* Long messages find out whether the ring is empty. */
static bool mailbox_find_room(struct mailbox_writer *w, struct mail *mail)
{
	mail->at = mailbox_place(w, mail->bytes);
	if (mail->bytes <= MAILBOX_SHORT && mailbox_has_room(w, mail))
		return true;
	mailbox_refresh(w);
	mail->at = mailbox_place(w, mail->bytes);
	return !w->is_broken && mailbox_has_room(w, mail);
}

bool mailbox_send(struct mailbox_writer *w, const struct mail *mail, const void *data)
{
	struct mailbox_cell *cell = &w->shared->cells[w->sent % MAILBOX_CELLS];
	struct mail own = *mail;

	assert(mail->bytes <= MAILBOX_BYTES);
	if (!mailbox_find_room(w, &own))
		return false;
	cell->mail = own;
	if (own.bytes > MAILBOX_INLINE) {
		if (w->taken == w->written)
			w->begun = own.at;
		memcpy(w->shared->ring + own.at % MAILBOX_RING, data, own.bytes);
		w->written = own.at + own.bytes;
	} else if (own.bytes) {
		memcpy(cell->data, data, own.bytes);
	}
	/* Partner: mailbox_has. The message comes before its turn, and the turn before this side's
	 * look at whether the reader sleeps. */
	atomic_store(&cell->turn, ++w->sent);
	return true;
}

static bool mailbox_is_possible(const struct mailbox_reader *r, const struct mail *mail)
{
	if (mail->bytes > MAILBOX_BYTES || r->taken - r->delivered >= mailbox_most(mail->bytes))
		return false;
	return mail->bytes <= MAILBOX_INLINE ||
	       (mail->at >= r->read && mail->at % MAILBOX_RING + mail->bytes <= MAILBOX_RING);
}

bool mailbox_peek(struct mailbox_reader *r, struct mail *mail)
{
	if (!mailbox_has(r))
		return false;
	*mail = r->shared->cells[r->taken % MAILBOX_CELLS].mail; /* the writer may change it yet */
	r->is_broken = !mailbox_is_possible(r, mail);
	return !r->is_broken;
}

void mailbox_take(struct mailbox_reader *r, const struct mail *mail, void *data)
{
	const struct mailbox_cell *cell = &r->shared->cells[r->taken++ % MAILBOX_CELLS];

	if (mail->bytes <= MAILBOX_INLINE) {
		if (mail->bytes)
			memcpy(data, cell->data, mail->bytes);
		return;
	}
	memcpy(data, r->shared->ring + mail->at % MAILBOX_RING, mail->bytes);
	r->read = mail->at + mail->bytes;
	/* Partner: mailbox_refresh. */
	atomic_store_explicit(&r->shared->taken, r->read, memory_order_release);
}
