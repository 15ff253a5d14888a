/* See inject.h. A death or a stop is a timer of the kernel's, so that it comes wherever the rank is
 * by then, in the library or out of it. */
#include "tests/faults/inject.h"

#include "core/clock.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define HOLD_MS 10000 /* for the driver, at the most */

void inject_init(struct inject *s, const struct scenario *scenario, struct board *board, int id,
		 int doorbell)
{
	*s = (struct inject){.scenario = scenario, .board = board, .id = id, .doorbell = doorbell};
	pthread_mutex_init(&s->lock, NULL);
}

void inject_finish(struct inject *s)
{
	if (s->has_thread)
		pthread_join(s->thread, NULL);
	pthread_mutex_destroy(&s->lock);
}

void inject_watch(struct inject *s, tutti_comm *comm)
{
	pthread_mutex_lock(&s->lock);
	s->comm = comm;
	pthread_mutex_unlock(&s->lock);
}

static void arm(int signal, uint64_t after_ns)
{
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = signal};
	struct itimerspec at = {
		.it_value = {(time_t)(after_ns / 1000000000), (long)(after_ns % 1000000000)}};
	timer_t timer;

	if (after_ns == 0)
		raise(signal);
	else if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 ||
		 timer_settime(timer, 0, &at, NULL) != 0) {
		perror("a timer");
		_exit(1);
	}
}

static void *abort_later(void *arg)
{
	struct inject *s = arg;
	struct timespec pause = {(time_t)(s->abort_ns / 1000000000),
				 (long)(s->abort_ns % 1000000000)};

	nanosleep(&pause, NULL); /* the moment at which it is to happen */
	pthread_mutex_lock(&s->lock);
	if (s->comm) {
		board_note(&s->board->seats[s->id], HAD_ABORT);
		tutti_comm_abort(s->comm);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

static void inject_into_self(struct inject *s, const struct fault *f, int number)
{
	uint64_t after_ns = f->after_ns[s->id];

	atomic_store(&s->board->seats[s->id].inject_ns[number], clock_now_ns() + after_ns);
	if (f->kind != KIND_ABORT) {
		arm(f->kind == KIND_KILL ? SIGKILL : SIGSTOP, after_ns);
		return;
	}
	s->abort_ns = after_ns;
	s->has_thread = pthread_create(&s->thread, NULL, abort_later, s) == 0;
}

static void ask_driver(struct inject *s, const struct fault *f, int number)
{
	uint64_t one = 1, deadline = deadline_after_ms(HOLD_MS);
	atomic_int *state = &s->board->requests[number].state;

	atomic_store(&s->board->requests[number].due_ns, clock_now_ns() + f->after_ns[f->trigger]);
	atomic_store(state, REQUEST_WANTED);
	if (write(s->doorbell, &one, sizeof one) != sizeof one)
		perror("the driver's doorbell");
	while (f->holds && atomic_load(state) != REQUEST_DONE && clock_now_ns() < deadline)
		poll(NULL, 0, 1);
}

static bool is_of_ranks(enum kind kind)
{
	return kind == KIND_KILL || is_long_stop(kind) || kind == KIND_NAP || kind == KIND_ABORT;
}

static bool is_at(const struct fault *f, enum point point, int segment, int step)
{
	if (f->point != point)
		return false;
	if (point == POINT_AGREE)
		return f->segment == segment;
	return (point != POINT_CALL && point != POINT_SPLIT) ||
	       (f->segment == segment && f->step == step);
}

void inject_at(struct inject *s, enum point point, int segment, int step)
{
	for (int i = 0; i < s->scenario->fault_count; i++) {
		const struct fault *f = &s->scenario->faults[i];
		if (s->is_injected[i] || !is_at(f, point, segment, step))
			continue;
		if (is_of_ranks(f->kind) ? !(f->victims & 1u << s->id) : f->trigger != s->id)
			continue;
		s->is_injected[i] = true;
		if (is_of_ranks(f->kind))
			inject_into_self(s, f, i);
		else
			ask_driver(s, f, i);
	}
}
