/* The toy model of meshes: mesh_toy.h. */
#include "tests/train/mesh_toy.h"

#include "tests/train/ranks.h"
#include "tests/train/toy.h"
#include "train/base/base.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 24 };

static const struct described {
	int unit, ndim;
	int64_t shape[3];
	const char *split;
	int dim;
	const char *partial;
} params[MESH_PARAMS] = {
	{0, 2, {13, 12}, "tp", 0, NULL}, /* tied: the last unit uses it */
	{0, 1, {7}, NULL, 0, "tp"},       {1, 2, {6, 11}, "tp", 1, NULL},
	{1, 3, {2, 7, 3}, "tp", 1, NULL}, {1, 1, {5}, NULL, 0, NULL},
	{2, 2, {8, 4}, "ep", 0, NULL},    {2, 1, {33}, "tp", 0, NULL},
	{3, 2, {3, 5}, NULL, 0, "tp"},    {3, 2, {9, 8}, "tp", 1, NULL},
	{0, 2, {4, 6}, NULL, 0, NULL}, /* tied, too, and not registered beside the first */
	{1, 2, {0, 5}, "tp", 0, NULL},    {2, 2, {4, 0}, NULL, 0, "tp"},
	{3, 2, {2, 3}, "tp", 0, NULL}, /* of three ranks and more the last have none of it */
	{0, 2, {3, 2}, "tp", 0, NULL}, /* tied, and likewise */
};

/* The last unit uses it as well. */
static bool is_tied(int param)
{
	return param == 0 || param == 9 || param == 13;
}

void mesh_text_read(struct mesh_text *mesh, const char *text)
{
	mesh->count = 0;
	snprintf(mesh->text, sizeof mesh->text, "%s", text);
	for (char *at = mesh->text; *at;) {
		tutti_axis *axis = &mesh->axes[mesh->count++];
		axis->name = at;
		at = strchr(at, '=');
		*at++ = '\0';
		axis->size = (int)strtol(at, &at, 10);
		at += *at == ',';
	}
}

static void register_param(tutti_model *model, int p)
{
	const struct described *d = &params[p];
	char name[32];

	snprintf(name, sizeof name, "param.%d", p);
	CHECK(tutti_model_param(model, d->unit, name, d->ndim, d->shape, 0) == p);
	if (d->split)
		CHECK(tutti_model_param_split(model, p, d->split, d->dim) == TUTTI_OK);
	if (d->partial)
		CHECK(tutti_model_param_partial(model, p, d->partial) == TUTTI_OK);
}

tutti_model *mesh_toy_register(int stages)
{
	tutti_model *model;
	char name[32];

	CHECK(tutti_model_create(&model) == TUTTI_OK);
	for (int u = 0; u < MESH_UNITS; u++) {
		snprintf(name, sizeof name, "unit.%d", u);
		CHECK(tutti_model_unit(model, name) == u);
		CHECK(tutti_model_unit_stage(model, u, u * stages / MESH_UNITS) == TUTTI_OK);
	}
	for (int p = 0; p < MESH_PARAMS; p++)
		register_param(model, p);
	for (int p = 0; p < MESH_PARAMS; p++)
		if (is_tied(p))
			CHECK(tutti_model_unit_uses(model, MESH_UNITS - 1, p) == TUTTI_OK);
	return model;
}

static void draw_values(struct mesh_toy *toy)
{
	for (int p = 0; p < MESH_PARAMS; p++)
		CHECK(p == 4 ? tutti_param_init_constant(toy->trainer, p, 0.25f) == TUTTI_OK
			     : tutti_param_init_normal(toy->trainer, p, 0.5f, 2) == TUTTI_OK);
}

/* comm: without a mesh. */
static tutti_status start(struct mesh_toy *toy, tutti_comm *comm, const tutti_train_config *config)
{
	tutti_model *model = mesh_toy_register(tutti_mesh_size(toy->mesh, "pp") * toy->chunks);
	tutti_status status =
		toy->mesh ? tutti_trainer_create_on(&toy->trainer, model, toy->mesh, config)
			  : tutti_trainer_create(&toy->trainer, model, comm, config);

	tutti_model_destroy(model);
	if (status == TUTTI_OK)
		draw_values(toy);
	return status;
}

tutti_status mesh_toy_try(struct mesh_toy *toy, tutti_comm *comm, const char *axes,
			  const tutti_train_config *config)
{
	return mesh_toy_try_chunks(toy, comm, axes, 1, config);
}

tutti_status mesh_toy_try_chunks(struct mesh_toy *toy, tutti_comm *comm, const char *axes,
				 int chunks, const tutti_train_config *config)
{
	struct mesh_text read;

	*toy = (struct mesh_toy){
		.rank = tutti_rank(comm), .size = tutti_size(comm), .chunks = chunks};
	mesh_text_read(&read, axes);
	if (read.count)
		TRY(tutti_mesh_create(&toy->mesh, comm, read.axes, read.count));
	return start(toy, comm, config);
}

tutti_status mesh_toy_try_on(struct mesh_toy *toy, tutti_mesh *mesh,
			     const tutti_train_config *config)
{
	*toy = (struct mesh_toy){.mesh = mesh, .chunks = 1};
	return start(toy, NULL, config);
}

void mesh_toy_make(struct mesh_toy *toy, tutti_comm *comm, const char *axes,
		   const tutti_train_config *config)
{
	tutti_status status = mesh_toy_try(toy, comm, axes, config);

	if (status == TUTTI_OK)
		return;
	fprintf(stderr, "%s: %s\n", axes, tutti_comm_error(NULL));
	exit(1);
}

void mesh_toy_destroy(struct mesh_toy *toy)
{
	tutti_trainer_destroy(toy->trainer);
	tutti_mesh_destroy(toy->mesh);
}

size_t mesh_toy_count(int param)
{
	size_t count = 1;

	for (int i = 0; i < params[param].ndim; i++)
		count *= (size_t)params[param].shape[i];
	return count;
}

static int gradient(int param, size_t index, int unit, int sample)
{
	return (sample * 31 + param * 7 + (int)index * 3 + unit * 5) % 17 - 8;
}

/* The place in the whole tensor of element i of a piece. */
static size_t whole_place(const struct described *d, int64_t first, int64_t count, size_t i)
{
	size_t inner = 1, size = d->ndim ? (size_t)d->shape[d->dim] : 1;

	for (int k = d->dim + 1; k < d->ndim; k++)
		inner *= (size_t)d->shape[k];
	size_t row = i / inner, block = row / (size_t)count;
	return (block * size + (size_t)first + row % (size_t)count) * inner + i % inner;
}

/* This rank's share of the samples of a batch. */
struct share {
	int first, last;
};

static struct share share_of(const struct mesh_toy *toy, int batch)
{
	const tutti_mesh *m = toy->mesh;
	int cp = tutti_mesh_size(m, "cp"), ep = tutti_mesh_size(m, "ep");
	int parts = m ? tutti_mesh_size(m, "dp") * cp * ep : toy->size;
	int part = m ? (tutti_mesh_coord(m, "dp") * cp + tutti_mesh_coord(m, "cp")) * ep +
				   tutti_mesh_coord(m, "ep")
		     : toy->rank;

	return (struct share){batch * 1000 + SAMPLES * part / parts,
			      batch * 1000 + SAMPLES * (part + 1) / parts};
}

/* A partial gradient is divided among the ranks of "tp": the first has the most, others a little.
 */
static int own_part(const struct mesh_toy *toy, const struct described *d, int value)
{
	int ranks = tutti_mesh_size(toy->mesh, "tp"), rank = tutti_mesh_coord(toy->mesh, "tp");

	if (!d->partial || ranks == 1)
		return value;
	return rank == 0 ? value - (ranks - 1) * ranks / 2 : rank;
}

/* What samples add to a parameter's gradient in unit's backward. An expert sees every sample: its
 * rank has those that other ranks of "ep" have sent. */
static void add_gradient(struct mesh_toy *toy, int p, int unit, struct share share,
			 struct share experts)
{
	const struct described *d = &params[p];
	float *grad = tutti_param_grad(toy->trainer, p);
	int64_t first, count;
	size_t whole = mesh_toy_count(p);

	CHECK(grad != NULL);
	CHECK(tutti_param_piece(toy->trainer, p, &first, &count) == TUTTI_OK);
	if (d->split && strcmp(d->split, "ep") == 0)
		share = experts;
	size_t own = whole ? whole / (size_t)d->shape[d->dim] * (size_t)count : 0;
	for (size_t i = 0; i < own; i++) {
		int sum = 0;
		for (int s = share.first; s < share.last; s++)
			sum += gradient(p, whole_place(d, first, count, i), unit, s);
		grad[i] += (float)own_part(toy, d, sum);
	}
}

static int unit_is_here(const struct mesh_toy *toy, int unit)
{
	int ranks = tutti_mesh_size(toy->mesh, "pp"), stages = ranks * toy->chunks;

	return unit * stages / MESH_UNITS % ranks == tutti_mesh_coord(toy->mesh, "pp");
}

static tutti_status try_backward(struct mesh_toy *toy, int unit, struct share share,
				 struct share experts)
{
	TRY(tutti_backward_begin(toy->trainer, unit));
	for (int p = 0; p < MESH_PARAMS; p++)
		if (params[p].unit == unit || (is_tied(p) && unit == MESH_UNITS - 1))
			add_gradient(toy, p, unit, share, experts);
	return tutti_backward_end(toy->trainer, unit);
}

static void backward(struct mesh_toy *toy, int unit, struct share share, struct share experts)
{
	CHECK(try_backward(toy, unit, share, experts) == TUTTI_OK);
}

static tutti_status try_forward(struct mesh_toy *toy, int unit)
{
	TRY(tutti_forward_begin(toy->trainer, unit));
	for (int p = 0; p < MESH_PARAMS; p++)
		if (params[p].unit == unit)
			CHECK(tutti_param_data(toy->trainer, p) != NULL);
	return tutti_forward_end(toy->trainer, unit);
}

void mesh_toy_forward(struct mesh_toy *toy, int unit)
{
	CHECK(try_forward(toy, unit) == TUTTI_OK);
}

static struct share slice(struct share share, int m, int micro_batches)
{
	int n = share.last - share.first;

	return (struct share){share.first + n * m / micro_batches,
			      share.first + n * (m + 1) / micro_batches};
}

/* The samples of all ranks of "ep" that this rank's share goes with. */
static struct share of_experts(const struct mesh_toy *toy, struct share share)
{
	int ranks = tutti_mesh_size(toy->mesh, "ep"), n = share.last - share.first;
	int first = share.first - n * tutti_mesh_coord(toy->mesh, "ep");

	return (struct share){first, first + n * ranks};
}

tutti_status mesh_toy_try_backward(struct mesh_toy *toy, int batch, int micro_batches)
{
	struct share all = share_of(toy, batch), experts = of_experts(toy, all);

	for (int m = 0; m < micro_batches; m++) {
		struct share own = slice(all, m, micro_batches);
		tutti_pass pass = m + 1 < micro_batches ? TUTTI_PASS_ACCUMULATE : TUTTI_PASS_LAST;
		TRY(tutti_micro_batch(toy->trainer, pass, own.last - own.first, NULL));
		for (int u = 0; u < MESH_UNITS; u++)
			if (unit_is_here(toy, u))
				TRY(try_forward(toy, u));
		for (int u = MESH_UNITS - 1; u >= 0; u--)
			if (unit_is_here(toy, u))
				TRY(try_backward(toy, u, own, slice(experts, m, micro_batches)));
	}
	return TUTTI_OK;
}

void mesh_toy_backward(struct mesh_toy *toy, int batch, int micro_batches)
{
	CHECK(mesh_toy_try_backward(toy, batch, micro_batches) == TUTTI_OK);
}

void mesh_toy_hold(struct mesh_toy *toy, int batch, int micro_batches)
{
	struct share all = share_of(toy, batch), experts = of_experts(toy, all);

	CHECK(tutti_micro_batch(toy->trainer, TUTTI_PASS_LAST, all.last - all.first, NULL) ==
	      TUTTI_OK);
	CHECK(tutti_grads_hold(toy->trainer, 1) == TUTTI_OK);
	for (int m = 0; m < micro_batches; m++) {
		if (m == micro_batches - 1)
			CHECK(tutti_grads_hold(toy->trainer, 0) == TUTTI_OK);
		for (int u = 0; u < MESH_UNITS; u++)
			if (unit_is_here(toy, u))
				mesh_toy_forward(toy, u);
		for (int u = MESH_UNITS - 1; u >= 0; u--)
			if (unit_is_here(toy, u))
				backward(toy, u, slice(all, m, micro_batches),
					 slice(experts, m, micro_batches));
	}
}

tutti_status mesh_toy_step(struct mesh_toy *toy, int batch, int micro_batches,
			   tutti_step_info *info)
{
	mesh_toy_backward(toy, batch, micro_batches);
	return tutti_step(toy->trainer, &toy_adamw, 1, info);
}

void mesh_toy_read(struct mesh_toy *toy, float *values)
{
	memset(values, 0, MESH_PARAMS * MESH_ELEMENTS * sizeof *values);
	for (int p = 0; p < MESH_PARAMS; p++)
		CHECK(tutti_param_read(toy->trainer, p, 0, mesh_toy_count(p),
				       values + p * MESH_ELEMENTS) == TUTTI_OK);
}

void mesh_toy_unit_backward(struct mesh_toy *toy, int unit, int batch, int m, int micro_batches)
{
	struct share all = share_of(toy, batch), experts = of_experts(toy, all);

	backward(toy, unit, slice(all, m, micro_batches), slice(experts, m, micro_batches));
}

double mesh_toy_items(const struct mesh_toy *toy, int batch)
{
	struct share all = share_of(toy, batch);

	return all.last - all.first;
}
