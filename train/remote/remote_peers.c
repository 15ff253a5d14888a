/* One call to each participant of a context, all in flight at once. */
#include "train/remote/remote.h"

#include <stdlib.h>

tutti_status remote_peers_of(struct remote *remote, const struct remote_context *context,
			     struct remote_peers **peers)
{
	struct remote_peers *made =
		calloc(1, sizeof *made + (size_t)remote->size * sizeof *made->each);

	if (!made)
		return fail_no_memory("calls to the participants of a context");
	pthread_mutex_lock(&remote->lock);
	for (int rank = 0; rank < remote->size; rank++)
		if (context->is_participant[rank])
			made->each[made->count++].rank = rank;
	pthread_mutex_unlock(&remote->lock);
	*peers = made;
	return TUTTI_OK;
}

static void remote_peers_begin(struct remote *remote, struct remote_peer *peer,
			       const char *function, const tutti_rpc_piece pieces[2],
			       int timeout_ms)
{
	const tutti_rpc_options options = {.timeout_ms = timeout_ms};
	int num_pieces = pieces[1].bytes ? 2 : 1;

	peer->answer = (tutti_rpc_answer){&peer->measure, sizeof peer->measure, {0}};
	kept_error_note(&peer->failure,
			tutti_rpc_call_async(remote->rpc, peer->rank, function, pieces, num_pieces,
					     &peer->answer, &options, &peer->future));
}

void remote_peers_call(struct remote *remote, struct remote_peers *peers, const char *function,
		       const tutti_rpc_piece pieces[2], int timeout_ms,
		       tutti_status (*here)(void *arg, struct remote_peer *self), void *arg)
{
	struct remote_peer *self = NULL;

	for (int i = 0; i < peers->count; i++) {
		struct remote_peer *peer = &peers->each[i];
		peer->failure = (struct kept_error){0};
		if (peer->rank == remote->rank)
			self = peer;
		else
			remote_peers_begin(remote, peer, function, pieces, timeout_ms);
	}
	if (self)
		kept_error_note(&self->failure, here(arg, self));
	for (int i = 0; i < peers->count; i++)
		if (peers->each[i].future)
			kept_error_note(&peers->each[i].failure,
					tutti_rpc_wait(&peers->each[i].future, 0));
}
