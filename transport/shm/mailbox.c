/* See mailbox.h. */
#include "transport/shm/mailbox.h"

#include <assert.h>
#include <string.h>

/* A message lies in one piece, at a multiple of a cache line. Both sides come to the same. */
static uint64_t mailbox_place(uint64_t position, size_t bytes)
{
	uint64_t at = (position + 63) & ~(uint64_t)63;

	if (at % MAILBOX_RING + bytes > MAILBOX_RING)
		at += MAILBOX_RING - at % MAILBOX_RING;
	return at;
}

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

static bool mailbox_has_room(const struct mailbox_writer *w, uint64_t end)
{
	return w->sent - w->delivered < MAILBOX_CELLS && end - w->taken <= MAILBOX_RING;
}

bool mailbox_send(struct mailbox_writer *w, const struct mail *mail, const void *data)
{
	struct mailbox_cell *cell = &w->shared->cells[w->sent % MAILBOX_CELLS];
	bool is_inline = mail->bytes <= MAILBOX_INLINE;
	uint64_t at = is_inline ? w->written : mailbox_place(w->written, mail->bytes);
	uint64_t end = is_inline ? at : at + mail->bytes;

	assert(mail->bytes <= MAILBOX_BYTES);
	if (!mailbox_has_room(w, end)) {
		mailbox_refresh(w);
		if (w->is_broken || !mailbox_has_room(w, end))
			return false;
	}
	cell->mail = *mail;
	if (mail->bytes)
		memcpy(is_inline ? cell->data : w->shared->ring + at % MAILBOX_RING, data,
		       mail->bytes);
	w->written = end;
	/* Partner: mailbox_has. The message comes before its turn, and the turn before this side's
	 * look at whether the reader sleeps. */
	atomic_store(&cell->turn, ++w->sent);
	return true;
}

bool mailbox_peek(struct mailbox_reader *r, struct mail *mail)
{
	if (!mailbox_has(r))
		return false;
	*mail = r->shared->cells[r->taken % MAILBOX_CELLS].mail; /* the writer may change it yet */
	r->is_broken = mail->bytes > MAILBOX_BYTES || r->taken - r->delivered >= MAILBOX_CELLS;
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
	uint64_t at = mailbox_place(r->read, mail->bytes);
	memcpy(data, r->shared->ring + at % MAILBOX_RING, mail->bytes);
	r->read = at + mail->bytes;
	/* Partner: mailbox_refresh. */
	atomic_store_explicit(&r->shared->taken, r->read, memory_order_release);
}
