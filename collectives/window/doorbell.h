/* Posting, and waking the ranks that sleep. A post is a release store of a line's header or of a
 * word; each is followed by doorbell_ring. */
#ifndef COLLECTIVES_WINDOW_DOORBELL_H
#define COLLECTIVES_WINDOW_DOORBELL_H

#include "collectives/window/window_internal.h"

void doorbell_open(struct window *window); /* once, at join */
void doorbell_wake(struct window *window); /* the ranks that sleep for this one, or are armed */
void doorbell_wake_all(void *window);          /* a board calls it */
void doorbell_full_fence(struct window *window);

/* Pairs with the sleeper's count in doorbell_enter(): our store, then this load. Without a fence
 * between them a sleeper may be missed: a futex sleep is timed (1 ms at most), and a sleeper on
 * descriptors runs membarrier, which puts the fence here; where it cannot, needs_fence is set for
 * good. */
static inline void doorbell_ring(struct window *w)
{
	atomic_signal_fence(memory_order_seq_cst);
	if (__builtin_expect(atomic_load_explicit(&w->at.head->needs_fence, memory_order_relaxed),
			     0))
		doorbell_full_fence(w);
	if (__builtin_expect(atomic_load_explicit(&w->at.head->sleepers, memory_order_relaxed), 0))
		doorbell_wake(w);
}

static inline void word_post(struct window *w, enum word word, uint64_t value)
{
	atomic_store_explicit(&w->area->words[word].value, value, memory_order_release);
	doorbell_ring(w);
}

#endif
