/* Ordinary buffers that are only copied, read where they lie in the other process
 * (process_vm_readv): one copy instead of the two through slots. It pays for long blocks, since the
 * kernel looks up every page, and where most blocks come from another core.
 *
 * When the window is made every rank finds out whether it can read a known word of every other
 * rank, and from how many bytes on it would. When the lines of a call say that all ranks would,
 * each copies its blocks out of the others' memory, and none returns before all have said that they
 * are done.
 *
 * Three things may have changed since, and each is checked. A rank that has failed uses its buffers
 * again: so a rank that has read everything looks for failures before it says that it is done. A
 * process number may have been given to another process: so every read reads that process's word,
 * too. And memory that cannot be read is no failure: the rank says so before it says that it is
 * done, and then all ranks stage this call and all later ones. If a rank has died, that is noticed
 * there. */
#include "collectives/window/window_internal.h"

#include "collectives/window/allocations.h"
#include "collectives/window/doorbell.h"
#include "collectives/window/staged.h"
#include "core/log.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

static const struct window_path path; /* at the end */

/* The most that one step moves, so that advance never takes long. */
#define STEP_BYTES  ((size_t)256 << 10)
#define READS_NEVER UINT64_MAX
/* Times as many bytes, see reading_worth_from: docs/measurements/reading.md. */
#define WITH_OWN_BLOCK 16
#define AMONG_THREADS  8

void read_say_process(struct window *w)
{
	w->area->process = process_token();
	w->area->process_at = process_token_at();
}

/* Reads rank's memory, and its word. On failure errno says why, or is 0 when rank is another
 * process now. */
static bool reading_read_of(const struct window *w, int rank, void *to, uint64_t from, size_t bytes)
{
	const struct rank_area *area = &w->at.areas[rank];
	uint64_t process = 0;
	struct iovec here[] = {{to, bytes}, {&process, sizeof process}};
	struct iovec there[] = {{(void *)(uintptr_t)from, bytes},
				{(void *)(uintptr_t)area->process_at, sizeof process}};
	ssize_t got;

	errno = 0;
	got = process_vm_readv(w->board.places[rank].pid, here, 2, there, 2, 0);
	return got >= 0 && (size_t)got == bytes + sizeof process && process == area->process;
}

void read_find_out(struct window *w, size_t read_from)
{
	uint64_t from = read_from ? read_from : READS_NEVER, word;

	for (int rank = 0; rank < w->size && from != READS_NEVER; rank++) {
		if (rank == w->rank ||
		    reading_read_of(w, rank, &word, w->at.areas[rank].process_at, sizeof word))
			continue;
		log_info("cannot read the memory of rank %d (errno %d): ordinary buffers are "
			 "copied twice",
			 rank, errno);
		from = READS_NEVER;
	}
	/* Pairs with reading_all_read_from. */
	atomic_store_explicit(&w->area->reads_from, from, memory_order_release);
}

/* From how many bytes on all ranks would, as far as this one knows. */
static uint64_t reading_all_read_from(struct window *w)
{
	uint64_t most = 1;

	for (int rank = 0; rank < w->size && !w->reads_from; rank++) {
		uint64_t from =
			atomic_load_explicit(&w->at.areas[rank].reads_from, memory_order_acquire);
		if (!from)
			return READS_NEVER;
		most = from > most ? from : most;
	}
	if (!w->reads_from)
		w->reads_from = most;
	return w->reads_from;
}

/* The range that this rank copies out of rank's send buffer, and its place in recv: elements. */
static struct range reading_block_from(const struct window *w, const struct window_run *run,
				       int rank, size_t *to)
{
	struct range block = {place_at(w, run, rank), run->own};

	*to = 0;
	if (run->pattern == COLL_SCATTER)
		return run->args.root == rank ? block : (struct range){0, 0};
	block = block_of(run, RECV_SIDE, rank);
	*to = block.first;
	block.first = run->pattern == COLL_ALL_TO_ALL ? place_at(w, run, rank) : 0;
	return block;
}

/* Returns 0 if there is nothing to copy, or it is there already. */
static size_t reading_bytes_from(const struct window *w, const struct window_run *run, int rank)
{
	size_t to;
	struct range block = reading_block_from(w, run, rank, &to);
	const uint8_t *send = run->args.send, *recv = run->args.recv;

	if (rank == w->rank && send + block.first * run->unit == recv + to * run->unit)
		return 0;
	return block.count * run->unit;
}

static bool reading_is_copy(const struct window *w, const struct window_run *run)
{
	return w->size > 1 && (run->pattern == COLL_ALL_TO_ALL || run->pattern == COLL_ALL_GATHER ||
			       run->pattern == COLL_SCATTER);
}

static bool reading_is_shared_process(const struct window *w)
{
	for (int rank = 0; rank < w->size; rank++) {
		if (rank != w->rank && w->at.areas[rank].process == w->area->process)
			return true;
	}
	return false;
}

/* From how many bytes on, of the whole call, reading pays for this rank. Slots copy its own block
 * on the way, reading does not; and threads of one process wait for each other in the kernel. */
static uint64_t reading_worth_from(const struct window *w, const struct window_run *run,
				   uint64_t from)
{
	bool copies_own =
		run->pattern != COLL_ALL_TO_ALL && reading_bytes_from(w, run, w->rank) > 0;

	/* The root would do nothing. */
	if (run->pattern == COLL_SCATTER && run->args.root == w->rank && !copies_own)
		return READS_NEVER;
	if (copies_own || run->pattern == COLL_SCATTER)
		return from * WITH_OWN_BLOCK;
	return reading_is_shared_process(w) ? from * AMONG_THREADS : from;
}

bool read_publish(struct window *w, const struct window_run *run, struct line_buffers *buffers)
{
	uint64_t from;
	size_t bytes = run->total * run->unit;

	if (!reading_is_copy(w, run))
		return false;
	from = reading_all_read_from(w);
	if (from == READS_NEVER)
		return false;
	/* The others' lengths are not known. A rank whose blocks fit its line does not stand in the
	 * way. */
	if (run->args.collective == COLL_ALL_TO_ALLV)
		bytes = buffers->sends == SENDS_MUCH ? run->stream_bytes : SIZE_MAX;
	if (bytes < reading_worth_from(w, run, from))
		return false;
	buffers->reads = 1;
	/* Elsewhere no rank looks for it, and zero copy may need the place. */
	if (run->pattern != COLL_SCATTER || run->args.root == w->rank)
		buffers->send_address = (uintptr_t)run->args.send;
	return true;
}

bool read_begin(struct window *w, struct window_run *run)
{
	size_t steps = 0;

	for (int rank = 0; rank < w->size; rank++) {
		struct line_buffers buffers = line_buffers_of(w, run, rank);
		if (!buffers.reads)
			return false;
		/* An address there, nothing here. */
		w->scratch.peer_send[rank] = (uint8_t *)(uintptr_t)buffers.send_address;
	}
	for (int rank = 0; rank < w->size; rank++)
		steps += (reading_bytes_from(w, run, rank) + STEP_BYTES - 1) / STEP_BYTES;
	run->path = &path;
	run->pieces = 1; /* one generation, of a slot that stays empty */
	run->steps = (uint32_t)steps + 2;
	run->source = 0;
	run->read = 0;
	return true;
}

/* The next stretch. */
static bool reading_read_some(struct window *w, struct window_run *run)
{
	int rank = rank_after(w, 1 + run->source);
	size_t all = reading_bytes_from(w, run, rank), to, n;
	struct range block;
	uint64_t from;
	uint8_t *dst;

	while (run->read >= all) {
		rank = rank_after(w, 1 + ++run->source);
		run->read = 0;
		all = reading_bytes_from(w, run, rank);
	}
	block = reading_block_from(w, run, rank, &to);
	from = (uintptr_t)w->scratch.peer_send[rank] + block.first * run->unit + run->read;
	dst = (uint8_t *)run->args.recv + to * run->unit + run->read;
	n = all - run->read < STEP_BYTES ? all - run->read : STEP_BYTES;
	run->read += n;
	if (rank != w->rank)
		return reading_read_of(w, rank, dst, from, n);
	memcpy(dst, (const uint8_t *)run->args.send + block.first * run->unit + run->read - n, n);
	return true;
}

/* All has been read, or cannot be. */
static tutti_status reading_say_done(struct window *w)
{
	TRY(board_failure_while_reading(&w->board));
	word_post(w, WORD_TAKEN, w->generation + 1);
	return TUTTI_OK;
}

static size_t reading_send_bytes(const struct window *w, const struct window_run *run)
{
	bool is_root = run->args.root == w->rank;

	if (run->pattern == COLL_ALL_GATHER)
		return run->own * run->unit;
	return run->pattern == COLL_ALL_TO_ALL || is_root ? end_of_blocks(w, run, SEND_SIDE) : 0;
}

/* Staging such a buffer would end in a signal. A buffer that is mapped, but that others may not
 * read, is fine. */
static tutti_status reading_check_mapped(const struct window *w, const struct window_run *run)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = reading_send_bytes(w, run);
	size_t before = (uintptr_t)run->args.send % page;
	uint8_t *first = (uint8_t *)(uintptr_t)run->args.send - before;
	char what[128];

	if (!bytes || msync(first, before + bytes, MS_ASYNC) == 0 || errno != ENOMEM)
		return TUTTI_OK;
	return fail(
		TUTTI_ERR_SYSTEM,
		"In %s the send buffer of rank %d, %zu bytes at %p, is not all in mapped memory.",
		failure_call_text(w, run, what, sizeof what), w->rank, bytes, run->args.send);
}

static bool reading_all_could_read(const struct window *w)
{
	for (int rank = 0; rank < w->size; rank++) {
		if (atomic_load_explicit(&w->at.areas[rank].reads_from, memory_order_acquire) ==
		    READS_NEVER)
			return false;
	}
	return true;
}

/* On all ranks alike: the same call again, staged. */
static tutti_status reading_stage_instead(struct window *w, struct window_run *run)
{
	log_info("a rank could not read another rank's memory: from now on ordinary buffers are "
		 "copied twice");
	w->reads_from = READS_NEVER;
	TRY(reading_check_mapped(w, run));
	w->generation++;
	staged_begin(w, run);
	run->first_is_staged = false;
	staged_agree(w, run);
	run->step = UINT32_MAX; /* the next one is 0 */
	return TUTTI_OK;
}

/* The last step waits for all ranks, also for those that read nothing of this one: they may have
 * failed to read another. */
static struct need reading_read_need(const struct window *w, const struct window_run *run)
{
	struct need need = {WORD_TAKEN, 0, NULL};

	if (run->step == run->steps - 1)
		need.value = w->generation + 1;
	return need;
}

static tutti_status reading_read_step(struct window *w, struct window_run *run)
{
	if (run->step == run->steps - 1)
		return reading_all_could_read(w) ? TUTTI_OK : reading_stage_instead(w, run);
	if (run->step == run->steps - 2)
		return reading_say_done(w);
	if (!reading_read_some(w, run)) {
		/* WORD_TAKEN follows. */
		atomic_store_explicit(&w->area->reads_from, READS_NEVER, memory_order_relaxed);
		run->step = run->steps - 3;
	}
	return TUTTI_OK;
}

static const struct window_path path = {"read", reading_read_need, reading_read_step};
