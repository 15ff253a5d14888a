/* The board: the words in shared memory by which ranks of a node know of each other's calls, ends
 * and failures; how a waiting rank looks at them, and asks the kernel about the other ranks; and
 * the board as a kind of control. */
#include "collectives/control/board.h"

#include "collectives/control/control_internal.h"
#include "collectives/control/deadlines.h"
#include "core/clock.h"
#include "core/machine.h"
#include "core/rank_list.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void board_begin(struct board *b)
{
	pthread_mutex_init(&b->lock, NULL);
	b->places[b->rank].pid = (int32_t)getpid();
	b->places[b->rank].program = process_look(getpid()).program;
}

/* The first failure that rank has told becomes the job's. */
static void board_hear_first(const struct board *b, int rank)
{
	job_note(&b->job, atomic_load(&b->places[rank].failed_first));
}

/* Another rank of the job has failed, perhaps in another communicator: who finds this one gone is
 * told. From any thread. */
static void board_tell_first(struct board *b, int first)
{
	atomic_store(&b->places[b->rank].failed_first, first);
}

/* The first failure stays. */
static void control_board_decide(struct board *b, const struct failure *failure)
{
	if (failure->rank >= 0)
		board_hear_first(b, failure->rank);
	pthread_mutex_lock(&b->lock);
	if (b->decided.status == TUTTI_OK) {
		snprintf(b->message, sizeof b->message, "%s", failure->message);
		b->decided = *failure;
		b->decided.message = b->message;
	}
	pthread_mutex_unlock(&b->lock);
}

/* Decides failure, unless something was decided before. */
static tutti_status board_decide(struct board *b, const struct failure *failure)
{
	control_board_decide(b, failure);
	return fail(b->decided.status, "%s", b->message);
}

/* The failure that a look or board_tell has decided here; NULL: none. From any thread. */
static const struct failure *board_decided(struct board *b)
{
	pthread_mutex_lock(&b->lock);
	bool any = b->decided.status != TUTTI_OK;
	pthread_mutex_unlock(&b->lock);
	return any ? &b->decided : NULL;
}

void board_tell(struct board *b, const struct failure *failure)
{
	struct board_place *own = &b->places[b->rank];

	control_board_decide(b, failure);
	pthread_mutex_lock(&b->lock);
	bool is_first = atomic_load_explicit(&own->status, memory_order_relaxed) == 0;
	if (is_first) {
		memcpy(own->message, b->message, sizeof own->message);
		own->rank = b->decided.rank;
		own->is_common = b->decided.is_common;
		/* Pairs with the acquire in board_failure. */
		atomic_store_explicit(&own->status, (uint32_t)b->decided.status,
				      memory_order_release);
		atomic_fetch_add(b->failures, 1);
		/* The caller writes to its buffers after this. Pairs with
		 * board_failure_while_reading. */
		__sync_synchronize();
	}
	pthread_mutex_unlock(&b->lock);
	if (is_first)
		b->wake_all(b->arg);
}

void board_leave(struct board *b)
{
	atomic_store_explicit(&b->places[b->rank].recorder.has_left, 1, memory_order_release);
}

tutti_status board_failure(struct board *b)
{
	for (int rank = 0; rank < b->size; rank++) {
		const struct board_place *place = &b->places[rank];
		uint32_t status = atomic_load_explicit(&place->status, memory_order_acquire);
		char told[ERROR_BYTES], text[ERROR_BYTES];
		if (!status || rank == b->rank)
			continue;
		board_hear_first(b, rank);
		snprintf(told, sizeof told, "%.*s", ERROR_BYTES - 1, place->message);
		struct failure theirs = {.status = status_said(status),
					 .rank = place->rank,
					 .is_common = place->is_common != 0,
					 .message = told};
		struct failure failure = failure_of_peer(rank, &theirs, text);
		return board_decide(b, &failure);
	}
	return TUTTI_OK;
}

/* No later load is done sooner than an earlier one. (TSan does not know C11's fence.) */
static void board_loads_done(void)
{
#if defined(__x86_64__)
	atomic_signal_fence(memory_order_seq_cst);
#else
	__sync_synchronize();
#endif
}

tutti_status board_failure_while_reading(struct board *b)
{
	board_loads_done();
	return board_has_failed(b) ? board_failure(b) : TUTTI_OK;
}

tutti_status board_compare(struct board *b)
{
	const struct recorder *own = &b->places[b->rank].recorder;

	for (int rank = 0; rank < b->size; rank++) {
		const struct recorder *other = &b->places[rank].recorder;
		struct call_record mine, theirs;
		char text[ERROR_BYTES];
		uint64_t sequence;
		if (rank == b->rank || !recorders_differ(own, other, &sequence) ||
		    !recorder_find(own, sequence, &mine) ||
		    !recorder_find(other, sequence, &theirs))
			continue;
		call_record_mismatch(b->rank, &mine, rank, &theirs, sequence, text, sizeof text);
		return board_decide(b, &(struct failure){.status = TUTTI_ERR_MISMATCH,
							 .rank = FAILURE_NO_RANK,
							 .message = text});
	}
	return TUTTI_OK;
}

#define CONSENSUS_GONE UINT32_MAX

void board_tell_consensus(struct board *b, const uint8_t *address, size_t bytes)
{
	struct board_place *own = &b->places[b->rank];

	if (bytes)
		memcpy(own->consensus_address, address, bytes);
	/* Pairs with the acquire in board_find_consensus. */
	atomic_store_explicit(&own->consensus_bytes, bytes ? (uint32_t)bytes : CONSENSUS_GONE,
			      memory_order_release);
}

size_t board_find_consensus(const struct board *b, int rank, uint8_t *address)
{
	const struct board_place *place = &b->places[rank];
	uint32_t bytes = atomic_load_explicit(&place->consensus_bytes, memory_order_acquire);

	if (bytes > sizeof place->consensus_address)
		return 0;
	memcpy(address, place->consensus_address, bytes);
	return bytes;
}

bool board_has_no_consensus(const struct board *b, int rank)
{
	return atomic_load_explicit(&b->places[rank].consensus_bytes, memory_order_acquire) ==
	       CONSENSUS_GONE;
}

/* The ranks that have not made call sequence, as "ranks 1, 3"; "" for none. Returns text. */
static const char *board_missing(const struct board *b, uint64_t sequence, char *text,
				 size_t text_bytes)
{
	struct rank_list list;

	rank_list_begin(&list, text, text_bytes);
	for (int rank = 0; rank < b->size; rank++)
		if (recorder_issued(&b->places[rank].recorder) <= sequence)
			rank_list_add(&list, rank);
	return rank_list_end(&list);
}

/* "Rank 2 (process 123 on node7)", as it numbers itself. Returns text. */
static const char *board_who(const struct board *b, int rank, char *text, size_t text_bytes)
{
	char host[64] = "?", number[JOB_WHO_BYTES];

	gethostname(host, sizeof host - 1);
	snprintf(text, text_bytes, "Rank %d (%sprocess %d on %s)", rank,
		 job_who(&b->job, rank, number), (int)b->places[rank].pid, host);
	return text;
}

static bool board_has_left(const struct board *b, int rank)
{
	return atomic_load_explicit(&b->places[rank].recorder.has_left, memory_order_acquire);
}

/* One read of /proc, which tells more than the rank's descriptor: that it runs another program. */
static bool board_is_replaced(const struct board *b, int rank, struct process_look *look)
{
	uint64_t program = b->places[rank].program;

	*look = process_look(process_of(b->pid_fds[rank]));
	return program && look->program && look->program != program;
}

bool board_has_ended(const struct board *b, int rank)
{
	struct pollfd fd = {b->pid_fds[rank], POLLIN, 0};
	struct process_look look;

	return fd.fd >= 0 && (poll(&fd, 1, 0) > 0 || board_is_replaced(b, rank, &look));
}

#define AT_ONCE 16 /* processes in one look; each takes some 20 us */

static uint64_t board_wait_interval_ns(const struct board *b)
{
	int ms = b->stopped.silence_ms / 4;
	bool is_sooner = b->stopped.silence_ms && ms < BOARD_WATCH_MS;
	return MS_TO_NS(is_sooner ? ms : BOARD_WATCH_MS);
}

/* Stopped by SIGSTOP, a debugger, a batch system: the kernel says that of every process of the
 * node. A rank that computes or sleeps in a call of its own is not stopped. */
static bool board_wait_is_stopped(const struct board *b, int rank)
{
	return b->pid_fds[rank] >= 0 && process_is_stopped(process_of(b->pid_fds[rank]));
}

static bool board_wait_awaits(const struct board_wait *wait, int rank)
{
	return !wait->awaits || wait->awaits(wait->arg, rank);
}

/* The first rank that is stopped, or runs another program, from where the last look ended. */
static void board_look_at_processes(struct board *b, const struct board_wait *wait)
{
	b->stopped.rank = 0;
	b->stopped.lasts_ns = 0;
	for (int i = 0, looks = 0; i < b->size && looks < AT_ONCE; i++) {
		int rank = b->stopped.next++ % b->size;
		b->stopped.next %= b->size;
		struct process_look look;
		if (rank == b->rank || b->pid_fds[rank] < 0 || !board_wait_awaits(wait, rank))
			continue;
		looks++;
		if (board_is_replaced(b, rank, &look))
			b->replaced = rank + 1;
		else if (look.is_stopped && b->stopped.silence_ms)
			b->stopped.rank = rank + 1;
		if (b->replaced == rank + 1 || b->stopped.rank)
			return;
	}
}

static tutti_status board_decide_stopped(struct board *b, int rank, const char *why)
{
	char text[ERROR_BYTES], who[128];

	TRY(board_failure(b)); /* another rank may have told it already */
	snprintf(text, sizeof text, "%s is stopped (SIGSTOP, or a debugger), %s.",
		 board_who(b, rank, who, sizeof who), why);
	return board_decide(b, &(struct failure){.status = TUTTI_ERR_TIMEOUT,
						 .rank = FAILURE_NO_RANK,
						 .is_common = true,
						 .message = text});
}

static tutti_status board_wait_give_up(struct board *b)
{
	char why[100];

	snprintf(why, sizeof why, "for %.1f s by now (TUTTI_SILENCE_MS; 0: wait for ever)",
		 (double)b->stopped.lasts_ns * 1e-9);
	return board_decide_stopped(b, b->stopped.rank - 1, why);
}

tutti_status board_check_late(struct board *b)
{
	char why[100];

	snprintf(why, sizeof why,
		 "and the deadline of a call of rank %d has passed (TUTTI_TIMEOUT_MS)", b->rank);
	for (int rank = 0; rank < b->size; rank++)
		if (rank != b->rank && board_wait_is_stopped(b, rank))
			return board_decide_stopped(b, rank, why);
	return TUTTI_OK;
}

/* Whether an awaited rank has been stopped for too long. */
static tutti_status board_check_stopped(struct board *b, const struct board_wait *wait,
					uint64_t now_ns)
{
	uint64_t passed = now_ns - b->stopped.looked_ns, interval = board_wait_interval_ns(b);
	int rank = b->stopped.rank - 1;

	if (passed < interval)
		return TUTTI_OK;
	b->stopped.looked_ns = now_ns;
	if (rank < 0 || !board_wait_awaits(wait, rank) || !board_wait_is_stopped(b, rank)) {
		board_look_at_processes(b, wait);
		return TUTTI_OK;
	}
	/* Where this process was itself stopped, or starved, little of the time counts. */
	b->stopped.lasts_ns += passed < 2 * interval ? passed : 2 * interval;
	return b->stopped.lasts_ns < MS_TO_NS(b->stopped.silence_ms) ? TUTTI_OK
								     : board_wait_give_up(b);
}

/* Processes in one poll. */
#define POLL_AT_ONCE 64

/* For a rank that has left or ended. */
static tutti_status board_decide_gone(struct board *b, int rank)
{
	char text[ERROR_BYTES], who[128];

	TRY(board_failure(b)); /* it may have told a failure and left */
	board_who(b, rank, who, sizeof who);
	if (board_has_left(b, rank))
		snprintf(text, sizeof text, "%s " FAILURE_HAS_LEFT " after %llu calls.", who,
			 (unsigned long long)recorder_issued(&b->places[rank].recorder));
	else
		snprintf(text, sizeof text, "%s %s.", who,
			 b->replaced == rank + 1
				 ? "has ended: its process runs another program (exec)"
				 : "has died");
	return board_decide(
		b, &(struct failure){.status = TUTTI_ERR_PEER, .rank = rank, .message = text});
}

/* A rank may have posted what this one waits for before it left or ended, so it is missing only if
 * it still is awaited. */
static tutti_status board_check_gone(struct board *b, const struct board_wait *wait, int rank)
{
	return wait->awaits(wait->arg, rank) ? board_decide_gone(b, rank) : TUTTI_OK;
}

static tutti_status board_check_all_gone(struct board *b, const struct board_wait *wait)
{
	for (int rank = 0; rank < b->size; rank++)
		if (board_has_left(b, rank))
			TRY(board_check_gone(b, wait, rank));
	if (b->replaced)
		TRY(board_check_gone(b, wait, b->replaced - 1));
	for (int first = 0; first < b->size; first += POLL_AT_ONCE) {
		struct pollfd fds[POLL_AT_ONCE];
		int n = b->size - first < POLL_AT_ONCE ? b->size - first : POLL_AT_ONCE;

		for (int i = 0; i < n; i++)
			fds[i] = (struct pollfd){b->pid_fds[first + i], POLLIN, 0};
		if (poll(fds, (nfds_t)n, 0) <= 0)
			continue;
		for (int i = 0; i < n; i++)
			if (fds[i].revents)
				TRY(board_check_gone(b, wait, first + i));
	}
	return TUTTI_OK;
}

tutti_status board_check(struct board *b, const struct board_wait *wait, uint64_t now_ns)
{
	if (board_has_failed(b))
		TRY(board_failure(b));
	if (now_ns - b->compared_ns >= MS_TO_NS(BOARD_COMPARE_MS)) {
		b->compared_ns = now_ns;
		TRY(board_compare(b));
	}
	if (now_ns - b->checked_ns < MS_TO_NS(BOARD_DEATHS_MS))
		return TUTTI_OK;
	b->checked_ns = now_ns;
	TRY(board_check_all_gone(b, wait));
	return board_check_stopped(b, wait, now_ns);
}

/* Without a read of /proc, which has its own pace. */
static bool board_is_known_to_have_ended(const struct board *b, int rank)
{
	struct pollfd fd = {b->pid_fds[rank], POLLIN, 0};
	return fd.fd >= 0 && (b->replaced == rank + 1 || poll(&fd, 1, 0) > 0);
}

/* The same for call sequence, or NO_CALL, that goes by messages: which ranks it waits for is not
 * known here. is_bad: a rank is gone whether or not it made that call. */
static tutti_status board_check_call(struct board *b, uint64_t sequence, bool is_bad)
{
	struct board_wait wait = {NULL, NULL};

	if (board_has_failed(b))
		TRY(board_failure(b));
	TRY(board_compare(b));
	for (int rank = 0; rank < b->size; rank++) {
		bool left = board_has_left(b, rank), made_it;
		if (rank == b->rank || (!left && !board_is_known_to_have_ended(b, rank)))
			continue;
		/* Outside of calls a rank may leave: a send to it learns that on its channel. */
		made_it = sequence == NO_CALL ||
			  recorder_issued(&b->places[rank].recorder) > sequence;
		if (!made_it || (!left && is_bad))
			return board_decide_gone(b, rank);
	}
	return board_check_stopped(b, &wait, clock_now_ns());
}

/* The board as a kind of control. It needs no thread: a look is a few loads. */
struct control_board {
	struct control base;
	struct board *board;
	bool is_delivered; /* on_failure was called */
};

static struct board *board_of(struct control *control)
{
	return ((struct control_board *)control)->board;
}

static void control_board_report(struct control_board *c)
{
	c->is_delivered = true;
	c->base.on_failure(c->base.arg, board_decided(c->board));
}

static void control_board_check(struct control *control, const struct control_wait *wait)
{
	struct control_board *c = (struct control_board *)control;

	if (c->is_delivered ||
	    board_check_call(c->board, wait->sequence, wait->is_urgent) == TUTTI_OK)
		return;
	control_board_report(c);
}

static bool control_board_has_news(const struct control *control)
{
	return board_has_failed(((const struct control_board *)control)->board);
}

static void control_board_look(struct control *control)
{
	struct control_board *c = (struct control_board *)control;

	if (!c->is_delivered && board_failure(c->board) != TUTTI_OK)
		control_board_report(c);
}

/* Memory answers at once. */
static bool control_board_ask(struct control *control, uint64_t sequence, uint64_t deadline_ns)
{
	struct control_board *c = (struct control_board *)control;
	(void)sequence;

	if (!deadline_ns || c->is_delivered || board_check_late(c->board) == TUTTI_OK)
		return false;
	control_board_report(c);
	return true;
}

static const char *control_board_missing(struct control *control, uint64_t sequence, char *text,
					 size_t text_bytes)
{
	return board_missing(board_of(control), sequence, text, text_bytes);
}

static const struct failure *control_board_found(struct control *control)
{
	return board_decided(board_of(control));
}

static void control_board_tell(struct control *control, const struct failure *failure, int pending)
{
	(void)pending; /* what this rank has posted lies in memory, and its calls are on the board
			*/
	board_tell(board_of(control), failure);
}

static void control_board_leave(struct control *control)
{
	board_leave(board_of(control));
}

static void control_board_destroy(struct control *control)
{
	control_board_leave(control);
	free(control);
}

static void control_board_tell_first(void *control, int first)
{
	board_tell_first(board_of(control), first);
}

static void hear_first(struct control *control, int rank)
{
	board_hear_first(board_of(control), rank);
}

static const struct control_kind board = {.check = control_board_check,
					  .ask = control_board_ask,
					  .missing = control_board_missing,
					  .found = control_board_found,
					  .has_news = control_board_has_news,
					  .look = control_board_look,
					  .fail = control_board_tell,
					  .leave = control_board_leave,
					  .destroy = control_board_destroy,
					  .tell_first = control_board_tell_first,
					  .hear_first = hear_first};

tutti_status control_share(struct control **control, struct board *shared,
			   const struct control_config *config)
{
	struct control_board *c = calloc(1, sizeof *c);

	if (!c)
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for its board", shared->rank);
	c->base.kind = &board;
	c->board = shared;
	c->base.job = shared->job = config->job;
	shared->stopped.silence_ms = config->silence_ms;
	*control = &c->base;
	return TUTTI_OK;
}
