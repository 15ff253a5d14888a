/* See mailbox.h. */
#include "transport/shm/mailbox.h"

#include <assert.h>
#include <string.h>

static void mailbox_refresh(struct mailbox_writer *w)
{
	/* Acquire, partners: the stores in mailbox_deliver and mailbox_take. The reader's loads of
	 * what is going to be overwritten happen before. */
	uint64_t delivered = atomic_load_explicit(&w->shared->delivered, memory_order_acquire);
	uint64_t taken = atomic_load_explicit(&w->shared->ring_taken, memory_order_acquire);

	if (delivered < w->delivered || delivered > w->sent || taken < w->ring_taken ||
	    taken > w->ring_written) {
		w->is_broken = true;
		return;
	}
	w->delivered = delivered;
	w->ring_taken = taken;
}

static uint64_t mailbox_undelivered_max(uint32_t bytes)
{
	return bytes > MAILBOX_SHORT_BYTES ? MAILBOX_LONG_MAX : MAILBOX_CELLS;
}

/* Where the next message goes: in one piece, aligned to a cache line. If the ring was empty when
 * last looked at, it begins anew at its start, whose lines are in the cache and pages in use. */
static uint64_t mailbox_place(const struct mailbox_writer *w, uint32_t bytes)
{
	uint64_t at = (w->ring_written + 63) & ~(uint64_t)63;
	uint32_t end = bytes > MAILBOX_SHORT_BYTES ? MAILBOX_RING_BYTES : MAILBOX_SHORT_RING_BYTES;

	if (w->ring_taken == w->ring_written || at % MAILBOX_RING_BYTES + bytes > end)
		at = (at + MAILBOX_RING_BYTES - 1) & ~(uint64_t)(MAILBOX_RING_BYTES - 1);
	return at;
}

static bool mailbox_has_room(const struct mailbox_writer *w, const struct mail *mail)
{
	if (w->sent - w->delivered >= mailbox_undelivered_max(mail->bytes))
		return false;
	/* Bytes that were skipped when the ring began anew hold no message. */
	uint64_t used_from = w->ring_taken > w->ring_begun ? w->ring_taken : w->ring_begun;
	return mail->bytes <= MAILBOX_INLINE_BYTES || w->ring_taken == w->ring_written ||
	       mail->ring_at + mail->bytes - used_from <= MAILBOX_RING_BYTES;
}

/* A long message looks at the reader's counts first, so that an empty ring begins anew. */
static bool mailbox_find_room(struct mailbox_writer *w, struct mail *mail)
{
	mail->ring_at = mailbox_place(w, mail->bytes);
	if (mail->bytes <= MAILBOX_SHORT_BYTES && mailbox_has_room(w, mail))
		return true;
	mailbox_refresh(w);
	mail->ring_at = mailbox_place(w, mail->bytes);
	return !w->is_broken && mailbox_has_room(w, mail);
}

bool mailbox_send(struct mailbox_writer *w, const struct mail *mail, const void *data)
{
	struct mailbox_cell *cell = &w->shared->cells[w->sent % MAILBOX_CELLS];
	struct mail own = *mail;

	assert(mail->bytes <= MAILBOX_MESSAGE_BYTES);
	if (!mailbox_find_room(w, &own))
		return false;
	cell->mail = own;
	if (own.bytes > MAILBOX_INLINE_BYTES) {
		if (w->ring_taken == w->ring_written)
			w->ring_begun = own.ring_at;
		memcpy(w->shared->ring + own.ring_at % MAILBOX_RING_BYTES, data, own.bytes);
		w->ring_written = own.ring_at + own.bytes;
	} else if (own.bytes) {
		memcpy(cell->data, data, own.bytes);
	}
	/* Partner: mailbox_has. The message comes before its turn, and the turn before this side's
	 * look at whether the reader sleeps. */
	atomic_store(&cell->turn, ++w->sent);
	return true;
}

static bool mailbox_is_valid(const struct mailbox_reader *r, const struct mail *mail)
{
	if (mail->bytes > MAILBOX_MESSAGE_BYTES ||
	    r->taken - r->delivered >= mailbox_undelivered_max(mail->bytes))
		return false;
	if (mail->bytes <= MAILBOX_INLINE_BYTES)
		return true;
	return mail->ring_at >= r->ring_taken &&
	       mail->ring_at % MAILBOX_RING_BYTES + mail->bytes <= MAILBOX_RING_BYTES;
}

bool mailbox_peek(struct mailbox_reader *r, struct mail *mail)
{
	if (!mailbox_has(r))
		return false;
	/* One copy, which is checked: the writer could still change the cell. */
	*mail = *(const volatile struct mail *)&r->shared->cells[r->taken % MAILBOX_CELLS].mail;
	r->is_broken = !mailbox_is_valid(r, mail);
	return !r->is_broken;
}

void mailbox_take(struct mailbox_reader *r, const struct mail *mail, void *data)
{
	const struct mailbox_cell *cell = &r->shared->cells[r->taken++ % MAILBOX_CELLS];

	if (mail->bytes <= MAILBOX_INLINE_BYTES) {
		if (mail->bytes)
			memcpy(data, cell->data, mail->bytes);
		return;
	}
	memcpy(data, r->shared->ring + mail->ring_at % MAILBOX_RING_BYTES, mail->bytes);
	r->ring_taken = mail->ring_at + mail->bytes;
	/* Partner: mailbox_refresh. */
	atomic_store_explicit(&r->shared->ring_taken, r->ring_taken, memory_order_release);
}
