/* The trainer's own collectives, with their bytes and waiting times; and the checks at the
 * beginning of a call on a trainer. */
#include "train/state/trainer_collectives.h"

#include "collectives/api/purpose.h"
#include "core/clock.h"
#include "train/base/base.h"
#include "train/state/trainer_state.h"

/* ---- checks ---- */

tutti_status trainer_check(const tutti_trainer *trainer, const char *function)
{
	if (!trainer)
		return fail_invalid("%s needs a trainer, not NULL.", function);
	return homes_failure(trainer);
}

tutti_status trainer_find_param(const tutti_trainer *trainer, const char *function, int *param)
{
	TRY(trainer_check(trainer, function));
	int count = trainer_whole(trainer)->param_count;
	if (*param < 0 || *param >= count)
		return fail_invalid("%s: there is no parameter %d among %d.", function, *param,
				    count);
	if (trainer->mesh)
		*param = trainer->mesh->locals[*param];
	return TUTTI_OK;
}

tutti_status trainer_need_param(const tutti_trainer *trainer, const char *function, int *param)
{
	int asked = *param;

	TRY(trainer_find_param(trainer, function, param));
	if (*param >= 0)
		return TUTTI_OK;
	const struct tutti_model *whole = &trainer->mesh->whole;
	const struct param *of = &whole->params[asked];
	return fail_invalid("%s: parameter '%s' is not on this rank: its unit '%s' is of stage %d "
			    "of 'pp'.",
			    function, of->name, whole->units[of->unit].name,
			    whole->units[of->unit].stage);
}

const char *pass_name(enum unit_pass pass)
{
	return pass == UNIT_FORWARD ? "forward" : "backward";
}

tutti_status trainer_check_no_unit(const tutti_trainer *trainer, const char *function)
{
	if (trainer->batch.open_pass == UNIT_NONE)
		return TUTTI_OK;
	const char *pass = pass_name(trainer->batch.open_pass);
	return fail_invalid("%s: unit '%s' is still in %s: call tutti_%s_end for it first.",
			    function, trainer->model.units[trainer->batch.open_unit].name, pass,
			    pass);
}

tutti_status trainer_check_closed(const tutti_trainer *trainer, const char *function)
{
	TRY(trainer_check(trainer, function));
	if (trainer->step.state != STEP_CLOSED)
		return fail_invalid("%s: a step has begun: finish it first.", function);
	return trainer_check_no_unit(trainer, function);
}

tutti_status trainer_check_averaged(const tutti_trainer *trainer, const char *function)
{
	if (!trainer_is_local(trainer) || trainer->size == 1 ||
	    !(trainer->owes_update || trainer->local.needs_average))
		return TUTTI_OK;
	return fail_invalid("%s: after %llu steps each rank has values of its own: ranks average "
			    "every %d steps.",
			    function, (unsigned long long)trainer->steps,
			    trainer->config.local_sgd_steps);
}

/* ---- collectives ---- */

/* The least bytes that one of so many ranks sends in a collective. */
static uint64_t trainer_collectives_gather_bytes(size_t bytes, int ranks)
{
	return (uint64_t)(ranks - 1) * bytes / (uint64_t)ranks;
}

static uint64_t trainer_collectives_all_reduce_bytes(size_t bytes, int ranks)
{
	return 2 * (uint64_t)(ranks - 1) * bytes / (uint64_t)ranks;
}

const char *bucket_label(const tutti_trainer *trainer, const struct bucket *bucket,
			 struct bucket_label *label)
{
	const struct param_span *span = bucket->span;
	const struct param *first = &trainer->model.params[span->params[0]];
	const struct param *last = &trainer->model.params[span->params[span->param_count - 1]];

	if (trainer->layout.by_unit)
		snprintf(label->text, sizeof label->text, "unit %.50s",
			 trainer->model.units[first->unit].name);
	else if (first == last)
		snprintf(label->text, sizeof label->text, "parameter %.45s", first->name);
	else
		snprintf(label->text, sizeof label->text, "parameters %.20s to %.20s", first->name,
			 last->name);
	return label->text;
}

void trainer_count_reduced(tutti_trainer *trainer, size_t bytes, int ranks, bool is_all)
{
	trainer->stats.sent_grad_bytes +=
		is_all ? trainer_collectives_all_reduce_bytes(bytes, ranks)
		       : trainer_collectives_gather_bytes(bytes, ranks);
	trainer->stats.collectives++;
}

tutti_status trainer_gather(tutti_trainer *trainer, struct bucket *bucket, const char *part,
			    char *whole, uint32_t purpose)
{
	const struct param_span *span = bucket->span;
	tutti_dtype dtype = trainer->config.param_dtype;
	struct bucket_label label;
	tutti_call call = {.work = &bucket->gathering,
			   .stream = bucket->home->stream,
			   .label = bucket_label(trainer, bucket, &label)};

	purpose_set(&call, purpose);
	trainer->stats.sent_param_bytes += trainer_collectives_gather_bytes(
		span->elements * dtype_bytes(dtype), trainer->layout.shard_size);
	trainer->stats.collectives++;
	return group_status(trainer,
			    tutti_all_gatherv(part, whole, span->shares, NULL, dtype,
					      bucket->home->gather, &call),
			    IN_SHARD_GROUP);
}

void trainer_abort(const tutti_trainer *trainer)
{
	for (int h = 0; h < trainer->home_count; h++) {
		const struct home *home = &trainer->homes[h];
		tutti_comm *own[] = {home->gather, home->reduce, home->replicas};
		for (int i = 0; i < 3; i++)
			if (own[i])
				tutti_comm_abort(own[i]);
	}
	mesh_abort(trainer->mesh);
}

bool comm_is_broken(const tutti_comm *comm)
{
	return comm && tutti_comm_status(comm) != TUTTI_OK;
}

static bool trainer_has_failed(const tutti_trainer *trainer)
{
	bool has = comm_is_broken(trainer->comm) || comm_is_broken(trainer->job.comm);

	for (int h = 0; h < trainer->home_count && !has; h++) {
		const struct home *home = &trainer->homes[h];
		has = comm_is_broken(home->gather) || comm_is_broken(home->reduce) ||
		      comm_is_broken(home->replicas);
	}
	return has || mesh_has_failed(trainer->mesh);
}

/* Of the caller's communicator. A trainer that is being destroyed does not know it any more. */
static tutti_status trainer_collectives_callers_status(const tutti_trainer *trainer)
{
	return trainer->job.comm ? tutti_comm_status(trainer->job.comm) : TUTTI_OK;
}

/* With HSDP, and on a mesh, a communicator has failed on the ranks of one group, where a rank has
 * died. Other ranks wait for these in groups without a dead rank, and must hear of it. After a
 * mismatch calls on the other communicators match no more. Keeps the last error. */
static void trainer_collectives_pass_failure_on(const tutti_trainer *trainer, tutti_status status)
{
	const struct home *home = &trainer->homes[0];
	bool has_groups = trainer->mesh || (home && home->gather && home->replicas);

	if ((!has_groups && status != TUTTI_ERR_MISMATCH) || !trainer_has_failed(trainer))
		return;
	struct kept_error why = kept_error_of(status);
	trainer_abort(trainer);
	kept_error_return(&why);
}

static const char *trainer_collectives_purpose_text(const tutti_trainer *trainer, uint32_t purpose,
						    char text[192])
{
	uint32_t unit = purpose / 4, pass = purpose % 4;

	if (purpose == PURPOSE_STEP_END)
		return "the end of the step";
	if (unit >= (uint32_t)trainer->model.unit_count ||
	    (pass != UNIT_FORWARD && pass != UNIT_BACKWARD))
		return "something else";
	snprintf(text, 192, "the %s of unit '%s'", pass_name((enum unit_pass)pass),
		 trainer->model.units[unit].name);
	return text;
}

/* Names the units, if the call of a shard group has failed because ranks have begun different ones.
 */
static bool trainer_collectives_units_differ(const tutti_trainer *trainer, const char *message)
{
	struct rank_purpose calls[2];
	char first[192], second[192];
	int base = trainer->rank - trainer->shard_rank;

	if (!purposes_differ(message, calls))
		return false;
	fail(TUTTI_ERR_MISMATCH,
	     "Rank %d is at %s while rank %d is at %s: run the same units in the same order on all "
	     "ranks.",
	     job_rank_of(trainer, base + calls[0].rank),
	     trainer_collectives_purpose_text(trainer, calls[0].purpose, first),
	     job_rank_of(trainer, base + calls[1].rank),
	     trainer_collectives_purpose_text(trainer, calls[1].purpose, second));
	return true;
}

tutti_status group_status(const tutti_trainer *trainer, tutti_status status, enum rank_group group)
{
	if (status == TUTTI_OK)
		return TUTTI_OK;
	trainer_collectives_pass_failure_on(trainer, status);
	int shards = trainer->layout.shard_size, first = trainer->rank - trainer->shard_rank;
	struct kept_error why = kept_error_of(status);
	/* Another trainer has aborted: its caller does not know this communicator. */
	const char *hint =
		status == TUTTI_ERR_ABORTED
			? ": a trainer on that rank gave up its step, and its error says why."
			: "";

	/* The trainer's own communicators have failed with the caller's. */
	if (trainer_collectives_callers_status(trainer) != TUTTI_OK)
		return tutti_set_error(trainer_collectives_callers_status(trainer),
				       tutti_comm_error(trainer->job.comm));
	if (group == IN_SHARD_GROUP && trainer_collectives_units_differ(trainer, why.message))
		return status;
	if (trainer->config.strategy != TUTTI_HSDP || group == AMONG_PARTS)
		return fail(status, "%.400s%s", why.message, hint);
	if (group == IN_SHARD_GROUP)
		return fail(status,
			    "In a shard group, whose ranks 0 to %d are the job's ranks %d to "
			    "%d: %.300s%s",
			    shards - 1, first, first + shards - 1, why.message, hint);
	return fail(status, "Among replicas, whose rank r is the job's rank %d + %d r: %.300s%s",
		    trainer->shard_rank, shards, why.message, hint);
}

tutti_status bucket_status(const tutti_trainer *trainer, const struct bucket *bucket,
			   const char *what, tutti_status status)
{
	const struct param_span *span = bucket->span;
	const struct param *first = &trainer->model.params[span->params[0]];
	const struct param *last = &trainer->model.params[span->params[span->param_count - 1]];

	if (status == TUTTI_OK)
		return TUTTI_OK;
	struct kept_error why = kept_error_of(status);
	if (trainer->layout.by_unit)
		return fail(status, "%s unit '%.127s': %.340s", what,
			    trainer->model.units[first->unit].name, why.message);
	if (first == last)
		return fail(status, "%s parameter '%.127s': %.340s", what, first->name,
			    why.message);
	return fail(status, "%s parameters '%.80s' to '%.80s': %.300s", what, first->name,
		    last->name, why.message);
}

/* A single rank does not wait. */
static void trainer_collectives_count_wait(tutti_trainer *trainer, double begin)
{
	if (trainer->job.size > 1)
		trainer->stats.exposed_seconds += clock_now_seconds() - begin;
}

enum { CHECK_MS = 50 };

/* The work may be in flight on a communicator that the caller does not know. If the caller's
 * communicator is aborted, so are the trainer's. */
tutti_status trainer_wait(tutti_trainer *trainer, tutti_work **work, enum rank_group group)
{
	if (!*work)
		return TUTTI_OK;
	double begin = clock_now_seconds();
	tutti_status status;
	while ((status = tutti_work_wait(work, CHECK_MS)) == TUTTI_IN_PROGRESS)
		if (trainer_collectives_callers_status(trainer) != TUTTI_OK)
			trainer_abort(trainer);
	trainer_collectives_count_wait(trainer, begin);
	return group_status(trainer, status, group);
}

tutti_status trainer_wait_values(tutti_trainer *trainer, struct bucket *bucket)
{
	tutti_work **work = &bucket->gathering;

	if (!bucket->home->device || !*work)
		return trainer_wait(trainer, work, IN_SHARD_GROUP);
	tutti_status status = tutti_work_wait_stream(*work, bucket->home->stream);
	tutti_work_release(work);
	return group_status(trainer, status, IN_SHARD_GROUP);
}

/* Finishes a call whose start has returned status. */
static tutti_status trainer_collectives_finish_call(tutti_trainer *trainer, tutti_status status,
						    tutti_work **work, enum rank_group group)
{
	TRY(group_status(trainer, status, group));
	return trainer_wait(trainer, work, group);
}

static tutti_status trainer_collectives_count_other(tutti_trainer *trainer, tutti_status status,
						    uint64_t sent)
{
	if (status != TUTTI_OK) {
		trainer_collectives_pass_failure_on(trainer, status);
		return status;
	}
	trainer->stats.sent_other_bytes += sent;
	trainer->stats.collectives++;
	return TUTTI_OK;
}

/* Counts a blocking collective that began at begin. */
static tutti_status trainer_collectives_count_blocking(tutti_trainer *trainer, tutti_status status,
						       uint64_t sent, double begin)
{
	trainer_collectives_count_wait(trainer, begin);
	return trainer_collectives_count_other(trainer, status, sent);
}

static tutti_status trainer_collectives_all_reduce_on(tutti_trainer *trainer, tutti_comm *comm,
						      double *values, size_t count, tutti_op op)
{
	double begin = clock_now_seconds();
	tutti_status status = tutti_all_reduce(values, values, count, TUTTI_F64, op, comm, NULL);
	uint64_t sent =
		trainer_collectives_all_reduce_bytes(count * sizeof *values, tutti_size(comm));
	return trainer_collectives_count_blocking(trainer, status, sent, begin);
}

static tutti_status trainer_collectives_all_gather_on(tutti_trainer *trainer, tutti_comm *comm,
						      void *all, size_t bytes_each)
{
	const char *own = (const char *)all + (size_t)tutti_rank(comm) * bytes_each;
	double begin = clock_now_seconds();
	tutti_status status = tutti_all_gather(own, all, bytes_each, TUTTI_U8, comm, NULL);
	uint64_t sent = (uint64_t)(tutti_size(comm) - 1) * bytes_each;
	return trainer_collectives_count_blocking(trainer, status, sent, begin);
}

static tutti_status trainer_collectives_broadcast_on(tutti_trainer *trainer, tutti_comm *comm,
						     void *data, size_t count, tutti_dtype dtype,
						     int root)
{
	double begin = clock_now_seconds();
	tutti_status status = tutti_broadcast(data, data, count, dtype, root, comm, NULL);
	uint64_t sent =
		trainer_collectives_gather_bytes(count * dtype_bytes(dtype), tutti_size(comm));
	return trainer_collectives_count_blocking(trainer, status, sent, begin);
}

tutti_status trainer_all_reduce(tutti_trainer *trainer, double *values, size_t count, tutti_op op)
{
	return trainer_collectives_all_reduce_on(trainer, trainer->comm, values, count, op);
}

tutti_status job_all_reduce(tutti_trainer *trainer, double *values, size_t count, tutti_op op)
{
	return trainer_collectives_all_reduce_on(trainer, trainer->job.comm, values, count, op);
}

tutti_status trainer_all_gather(tutti_trainer *trainer, void *all, size_t bytes_each)
{
	return trainer_collectives_all_gather_on(trainer, trainer->comm, all, bytes_each);
}

tutti_status job_all_gather(tutti_trainer *trainer, void *all, size_t bytes_each)
{
	return trainer_collectives_all_gather_on(trainer, trainer->job.comm, all, bytes_each);
}

tutti_status trainer_broadcast(tutti_trainer *trainer, void *data, size_t count, tutti_dtype dtype,
			       int root)
{
	return trainer_collectives_broadcast_on(trainer, trainer->comm, data, count, dtype, root);
}

tutti_status job_broadcast(tutti_trainer *trainer, void *data, size_t count, tutti_dtype dtype,
			   int root)
{
	return trainer_collectives_broadcast_on(trainer, trainer->job.comm, data, count, dtype,
						root);
}

tutti_status job_combine(tutti_trainer *trainer, float *values, size_t count)
{
	double begin = clock_now_seconds();
	tutti_status status = tutti_all_reduce(values, values, count, TUTTI_U32, TUTTI_BOR,
					       trainer->job.comm, NULL);
	uint64_t sent =
		trainer_collectives_all_reduce_bytes(count * sizeof *values, trainer->job.size);
	return trainer_collectives_count_blocking(trainer, status, sent, begin);
}

static tutti_status trainer_collectives_broadcast_in(struct home *home, tutti_comm *comm,
						     void *values, size_t count, tutti_dtype dtype,
						     int root)
{
	tutti_work *work = NULL;
	tutti_call call = {.work = &work, .stream = home->stream};

	TRY(tutti_broadcast(values, values, count, dtype, root, comm, &call));
	return tutti_work_wait(&work, 0);
}

/* The caller's communicator may have another GPU. Within root's shard group, then from its ranks to
 * those of the other groups. */
static tutti_status trainer_collectives_broadcast_at_home(tutti_trainer *trainer, struct home *home,
							  void *values, size_t count,
							  tutti_dtype dtype, int root)
{
	int shards = trainer->layout.shard_size;
	tutti_status status = TUTTI_OK;

	if (home->gather && trainer->rank / shards == root / shards)
		status = trainer_collectives_broadcast_in(home, home->gather, values, count, dtype,
							  root % shards);
	TRY(group_status(trainer, status, IN_SHARD_GROUP));
	if (home->replicas)
		status = trainer_collectives_broadcast_in(home, home->replicas, values, count,
							  dtype, root / shards);
	return group_status(trainer, status, AMONG_REPLICAS);
}

tutti_status trainer_broadcast_values(tutti_trainer *trainer, struct home *home, void *values,
				      size_t count, tutti_dtype dtype, int root)
{
	double begin = clock_now_seconds();

	if (!home->device)
		return trainer_broadcast(trainer, values, count, dtype, root);
	tutti_status status =
		trainer_collectives_broadcast_at_home(trainer, home, values, count, dtype, root);
	uint64_t sent = trainer_collectives_gather_bytes(count * dtype_bytes(dtype), trainer->size);
	return trainer_collectives_count_blocking(trainer, status, sent, begin);
}

tutti_status trainer_finish(tutti_trainer *trainer, tutti_status status, tutti_work **work)
{
	return trainer_collectives_finish_call(trainer, status, work, AMONG_PARTS);
}

/* On a communicator of the trainer's own: a rank of another group may have given up, which the
 * caller's communicator tells. */
static tutti_status trainer_collectives_gather_on_own(tutti_trainer *trainer, tutti_comm *comm,
						      void *all, size_t bytes_each,
						      enum rank_group group)
{
	const char *own = (const char *)all + (size_t)tutti_rank(comm) * bytes_each;
	tutti_work *work = NULL;
	tutti_call call = {.work = &work};
	tutti_status status = tutti_all_gather(own, all, bytes_each, TUTTI_U8, comm, &call);

	return trainer_collectives_finish_call(trainer, status, &work, group);
}

static tutti_status trainer_collectives_count_others(tutti_trainer *trainer, tutti_status status,
						     uint64_t sent)
{
	TRY(trainer_collectives_count_other(trainer, status, sent));
	trainer->stats.sent_mesh_other_bytes += sent;
	return TUTTI_OK;
}

tutti_status others_all_gather(tutti_trainer *trainer, void *all, size_t bytes_each)
{
	const struct trainer_mesh *mesh = trainer->mesh;
	tutti_status status = trainer_collectives_gather_on_own(trainer, mesh->others, all,
								bytes_each, AMONG_PARTS);

	return trainer_collectives_count_others(trainer, status,
						(uint64_t)(mesh->other_count - 1) * bytes_each);
}

tutti_status others_broadcast(tutti_trainer *trainer, void *data, size_t bytes, int root)
{
	const struct trainer_mesh *mesh = trainer->mesh;
	tutti_work *work = NULL;
	tutti_call call = {.work = &work};
	tutti_status status =
		tutti_broadcast(data, data, bytes, TUTTI_U8, root, mesh->others, &call);

	status = trainer_collectives_finish_call(trainer, status, &work, AMONG_PARTS);
	return trainer_collectives_count_others(
		trainer, status, trainer_collectives_gather_bytes(bytes, mesh->other_count));
}

int job_rank_of(const tutti_trainer *trainer, int rank)
{
	return trainer->mesh ? tutti_parent_rank(trainer->comm, rank) : rank;
}

static tutti_status trainer_collectives_agree_on(tutti_trainer *trainer, tutti_comm *comm,
						 tutti_status own)
{
	double begin = clock_now_seconds();
	tutti_status status = error_agree(comm, own);
	uint64_t sent = trainer_collectives_all_reduce_bytes(sizeof(int32_t), tutti_size(comm));
	return trainer_collectives_count_blocking(trainer, status, sent, begin);
}

tutti_status trainer_agree(tutti_trainer *trainer, tutti_status own)
{
	return trainer_collectives_agree_on(trainer, trainer->comm, own);
}

tutti_status job_agree(tutti_trainer *trainer, tutti_status own)
{
	return trainer_collectives_agree_on(trainer, trainer->job.comm, own);
}

tutti_status trainer_shard_gather(tutti_trainer *trainer, void *all, size_t bytes_each)
{
	tutti_comm *comm = trainer->homes[0].gather;

	if (!comm)
		return TUTTI_OK;
	tutti_status status =
		trainer_collectives_gather_on_own(trainer, comm, all, bytes_each, IN_SHARD_GROUP);
	return trainer_collectives_count_other(
		trainer, status, (uint64_t)(trainer->layout.shard_size - 1) * bytes_each);
}

tutti_status trainer_meet(tutti_trainer *trainer, int home, uint32_t purpose)
{
	int32_t *all = trainer->step.met;
	tutti_status status = TUTTI_OK;

	for (int h = home; h < trainer->home_count && status == TUTTI_OK; h++) {
		tutti_work *work = NULL;
		tutti_call call = {.work = &work, .label = purpose ? "order of units" : NULL};
		tutti_comm *comm = trainer->homes[h].gather;
		if (!comm)
			continue;
		purpose_set(&call, purpose);
		status =
			tutti_all_gather(&all[trainer->shard_rank], all, 1, TUTTI_I32, comm, &call);
		status = trainer_collectives_finish_call(trainer, status, &work, IN_SHARD_GROUP);
		status = trainer_collectives_count_other(
			trainer, status, (uint64_t)(trainer->layout.shard_size - 1) * sizeof *all);
	}
	return status;
}

tutti_status trainer_messages_end(tutti_trainer *trainer)
{
	tutti_work *work = NULL;
	tutti_call call = {.work = &work, .stream = trainer->homes[0].stream};

	homes_join(trainer);
	return trainer_collectives_finish_call(trainer, tutti_group_end(&call), &work,
					       IN_SHARD_GROUP);
}

tutti_status trainer_average(tutti_trainer *trainer, struct home *home, float *values, size_t count,
			     size_t elements)
{
	tutti_work *work = NULL;
	tutti_call call = {.work = &work, .stream = home->stream};

	trainer->stats.sent_param_bytes +=
		trainer_collectives_all_reduce_bytes(elements * sizeof *values, trainer->size);
	trainer->stats.collectives++;
	tutti_status status = tutti_all_reduce(values, values, count, TUTTI_F32, TUTTI_AVG,
					       home->replicas, &call);
	return trainer_collectives_finish_call(trainer, status, &work, AMONG_REPLICAS);
}
