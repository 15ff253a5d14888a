/* Completion channels and completion queues of the fake. */
#include "tests/verbs/fake/fake.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct fake_channel *channel = calloc(1, sizeof *channel);
	int error = 0;

	if (!channel)
		return NULL;
	channel->base.context = context;
	channel->base.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	if (channel->base.fd < 0)
		error = errno;
	fake_lock();
	if (error == 0)
		error = fake_call_error(FAKE_CREATE_CHANNEL, fake_device_of(context));
	if (error == 0) {
		fake_context_of(context)->channels++;
		fake.counts.channels++;
	}
	fake_unlock();
	if (error == 0)
		return &channel->base;
	if (channel->base.fd >= 0)
		close(channel->base.fd);
	free(channel);
	errno = error;
	return NULL;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *base)
{
	struct fake_channel *channel = (struct fake_channel *)base;

	fake_lock();
	bool is_used = channel->users > 0;
	if (!is_used) {
		fake_context_of(base->context)->channels--;
		fake.counts.channels--;
	}
	fake_unlock();
	if (is_used)
		return EBUSY;
	close(base->fd);
	free(channel);
	return 0;
}

/* One event of the fd; there is one. */
static void take_count(const struct fake_channel *channel)
{
	uint64_t one;

	if (read(channel->base.fd, &one, sizeof one) != sizeof one)
		fake_violation("somebody else reads the descriptor of a completion channel");
}

static struct fake_queue *take_event(struct fake_channel *channel, int at)
{
	struct fake_queue *queue = channel->events[at];

	take_count(channel);
	channel->count--;
	for (int i = at; i < channel->count; i++)
		channel->events[i] = channel->events[i + 1];
	return queue;
}

int ibv_get_cq_event(struct ibv_comp_channel *base, struct ibv_cq **cq, void **cq_context)
{
	struct fake_channel *channel = (struct fake_channel *)base;
	struct pollfd readable = {.fd = base->fd, .events = POLLIN};
	struct fake_queue *queue = NULL;

	for (;;) {
		fake_lock();
		if (channel->count > 0) {
			queue = take_event(channel, 0);
			queue->unacked++;
		}
		fake_unlock();
		if (queue)
			break;
		if (fcntl(base->fd, F_GETFL) & O_NONBLOCK) {
			errno = EAGAIN;
			return -1;
		}
		if (poll(&readable, 1, -1) < 0)
			return -1;
	}
	*cq = &queue->base;
	*cq_context = queue->base.cq_context;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned count)
{
	struct fake_queue *queue = (struct fake_queue *)cq;

	fake_lock();
	if (count > queue->unacked)
		fake_violation("%u events are acknowledged where %u came", count, queue->unacked);
	else
		queue->unacked -= count;
	fake_unlock();
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
			     struct ibv_comp_channel *channel, int vector)
{
	struct fake_queue *queue = NULL;
	int error = cqe < 1 || cqe > FAKE_QUEUE_MOST || vector != 0 ? EINVAL : 0;

	if (error == 0 && (queue = calloc(1, sizeof *queue)))
		queue->entries = calloc((size_t)cqe, sizeof *queue->entries);
	if (error == 0 && (!queue || !queue->entries))
		error = ENOMEM;
	fake_lock();
	if (error == 0)
		error = fake_call_error(FAKE_CREATE_CQ, fake_device_of(context));
	if (error == 0) {
		queue->base = (struct ibv_cq){.context = context,
					      .channel = channel,
					      .cq_context = cq_context,
					      .cqe = cqe};
		if (channel)
			((struct fake_channel *)channel)->users++;
		fake_context_of(context)->queues++;
		fake.counts.queues++;
	}
	fake_unlock();
	if (error == 0)
		return &queue->base;
	if (queue)
		free(queue->entries);
	free(queue);
	errno = error;
	return NULL;
}

/* Events that nobody took go with it. Those that were taken must be acknowledged: the real function
 * waits for that for ever. */
static void forget_events(struct fake_queue *queue, struct fake_channel *channel)
{
	for (int i = channel->count - 1; i >= 0; i--)
		if (channel->events[i] == queue)
			take_event(channel, i);
	channel->users--;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct fake_queue *queue = (struct fake_queue *)cq;

	fake_lock();
	if (queue->users > 0) {
		fake_unlock();
		return EBUSY;
	}
	if (queue->unacked > 0)
		fake_violation("ibv_destroy_cq would wait for %u events to be acknowledged",
			       queue->unacked);
	if (cq->channel)
		forget_events(queue, (struct fake_channel *)cq->channel);
	fake_context_of(cq->context)->queues--;
	fake.counts.queues--;
	fake_unlock();
	free(queue->entries);
	free(queue);
	return 0;
}

static void notify(struct fake_queue *queue)
{
	struct fake_channel *channel = (struct fake_channel *)queue->base.channel;
	const uint64_t one = 1;

	if (!queue->is_armed || !channel)
		return;
	queue->is_armed = false;
	if (channel->count == FAKE_QUEUES) {
		fake_violation("more than %d events of one channel wait", FAKE_QUEUES);
		return;
	}
	channel->events[channel->count++] = queue;
	if (write(channel->base.fd, &one, sizeof one) != sizeof one)
		fake_violation("an event of a completion channel cannot be told");
}

static void overrun(struct fake_queue *queue)
{
	fake_violation("a completion queue of %d entries overruns", queue->base.cqe);
	queue->has_failed = true;
	for (struct fake_pair *pair = fake.pairs; pair; pair = pair->next)
		if (pair->base.send_cq == &queue->base || pair->base.recv_cq == &queue->base)
			fake_pair_break(pair);
}

void fake_queue_add(struct fake_queue *queue, const struct fake_completion *completion)
{
	if (queue->has_failed)
		return;
	if (queue->count == queue->base.cqe) {
		overrun(queue);
		return;
	}
	queue->entries[(queue->first + queue->count) % queue->base.cqe] = *completion;
	queue->count++;
	notify(queue);
}

void fake_queue_forget(struct fake_queue *queue, const struct fake_pair *pair)
{
	int kept = 0;

	for (int i = 0; i < queue->count; i++) {
		struct fake_completion *from =
			&queue->entries[(queue->first + i) % queue->base.cqe];
		if (from->pair != pair)
			queue->entries[(queue->first + kept++) % queue->base.cqe] = *from;
	}
	queue->count = kept;
}

/* The slots of this work request and of those before it are free. */
static void release(const struct fake_completion *completion)
{
	struct fake_ring *ring =
		completion->is_send ? &completion->pair->sends : &completion->pair->recvs;

	ring->done = completion->number + 1;
}

int fake_poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wcs)
{
	struct fake_queue *queue = (struct fake_queue *)cq;
	int taken = 0;

	fake_lock();
	/* A device that is gone has flushed its queue pairs: what is there can be polled. */
	bool has_failed = queue->has_failed || fake_call_error(FAKE_POLL_CQ, NULL) != 0;
	while (!has_failed && taken < count && queue->count > 0) {
		const struct fake_completion *entry = &queue->entries[queue->first];
		wcs[taken++] = entry->wc;
		release(entry);
		queue->first = (queue->first + 1) % queue->base.cqe;
		queue->count--;
	}
	fake_unlock();
	return has_failed ? -1 : taken;
}

int fake_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	struct fake_queue *queue = (struct fake_queue *)cq;

	if (solicited_only)
		return EINVAL;
	fake_lock();
	queue->is_armed = true;
	fake_unlock();
	return 0;
}
