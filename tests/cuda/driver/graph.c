/* Graphs, and graphs that can be launched: their nodes lie in streams of their own, so that what
 * does not come after one another runs at once. */
#include "tests/cuda/driver/graph.h"

#include <stdlib.h>
#include <string.h>

CUgraph graph_create(void)
{
	return must_alloc(sizeof(struct CUgraph_st));
}

CUgraphNode graph_add(CUgraph graph, const struct op *op, CUcontext context, CUgraphNode *after,
		      size_t n_after)
{
	CUgraphNode node = must_alloc(sizeof *node);
	CUgraphNode *more = must_alloc((graph->n + 1) * sizeof(CUgraphNode));

	node->op = *op;
	node->context = context;
	node->index = graph->n;
	node->is_last = true;
	node->n_after = n_after;
	node->after = must_alloc(n_after * sizeof(CUgraphNode));
	for (size_t i = 0; i < n_after; i++) {
		node->after[i] = after[i];
		after[i]->is_last = false;
	}
	for (size_t i = 0; i < graph->n; i++)
		more[i] = graph->nodes[i];
	more[graph->n++] = node;
	free(graph->nodes);
	graph->nodes = more;
	return node;
}

void graph_free(CUgraph graph)
{
	for (size_t i = 0; i < graph->n; i++) {
		op_finish(&graph->nodes[i]->op);
		free(graph->nodes[i]->after);
		free(graph->nodes[i]);
	}
	free(graph->nodes);
	free(graph);
}

CUresult cuGraphDestroy(CUgraph graph)
{
	TRY(driver_enter());
	if (graph == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	graph_free(graph);
	return CUDA_SUCCESS;
}

struct CUgraphExec_st {
	CUgraph graph;       /* a copy */
	CUstream *lanes;     /* of each node; many have the same */
	unsigned n_lanes;    /* that differ */
	struct task **tasks; /* of the launch that is being made */
	struct task *ended;  /* of the launch before, held */
};

/* A copy that nobody else holds. */
static CUgraph copy(const struct CUgraph_st *graph)
{
	CUgraph all = graph_create();

	for (size_t i = 0; i < graph->n; i++) {
		const struct CUgraphNode_st *node = graph->nodes[i];
		CUgraphNode *after = must_alloc(node->n_after * sizeof(CUgraphNode));
		struct op op = op_copy(&node->op);
		for (size_t k = 0; k < node->n_after; k++)
			after[k] = all->nodes[node->after[k]->index];
		graph_add(all, &op, node->context, after, node->n_after);
		free(after);
	}
	return all;
}

/* The stream of a node that it comes after, unless another one follows there already. With the
 * lock. */
static CUstream choose_lane(CUgraphExec exec, CUgraphNode node)
{
	for (size_t i = 0; i < node->n_after; i++) {
		CUstream lane = exec->lanes[node->after[i]->index];
		bool is_free = lane->context == node->context;
		for (size_t k = node->after[i]->index + 1; k < node->index; k++)
			is_free = is_free && exec->lanes[k] != lane;
		if (is_free)
			return lane;
	}
	return stream_create_branch(node->context, exec->n_lanes++);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	TRY(driver_enter());
	if (exec == NULL || graph == NULL || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	CUgraphExec made = must_alloc(sizeof *made);
	pthread_mutex_lock(&driver_lock);
	made->graph = copy(graph);
	made->lanes = must_alloc(graph->n * sizeof *made->lanes);
	made->tasks = must_alloc(graph->n * sizeof *made->tasks);
	for (size_t i = 0; i < graph->n; i++)
		made->lanes[i] = choose_lane(made, made->graph->nodes[i]);
	pthread_mutex_unlock(&driver_lock);
	*exec = made;
	return CUDA_SUCCESS;
}

/* With the lock. Two launches of one graph never overlap. */
static void launch(CUgraphExec exec, CUstream stream)
{
	struct op nothing = {.kind = OP_NOTHING};
	struct task *begin = stream_add(stream, &nothing, exec->ended);

	for (size_t i = 0; i < exec->graph->n; i++) {
		CUgraphNode node = exec->graph->nodes[i];
		struct op op = op_copy(&node->op);
		stream_join_connection(exec->lanes[i], stream);
		exec->tasks[i] = stream_add(exec->lanes[i], &op, begin);
		for (size_t k = 0; k < node->n_after; k++)
			task_after(exec->tasks[i], exec->tasks[node->after[k]->index]);
	}
	struct task *end = stream_add(stream, &nothing, NULL);
	for (size_t i = 0; i < exec->graph->n; i++)
		if (exec->graph->nodes[i]->is_last)
			task_after(end, exec->tasks[i]);
	task_drop(exec->ended);
	exec->ended = task_hold(end);
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream handle)
{
	CUresult error = CUDA_SUCCESS;
	CUstream stream;

	TRY(stream_of(handle, &stream));
	if (exec == NULL)
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&driver_lock);
	if (stream->capture)
		error = CUDA_ERROR_NOT_SUPPORTED; /* a graph within a graph, which nobody needs */
	else
		launch(exec, stream);
	pthread_mutex_unlock(&driver_lock);
	return error;
}

/* A launch that has not ended ends. */
CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	TRY(driver_enter());
	if (exec == NULL)
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&driver_lock);
	for (size_t i = 0; i < exec->graph->n; i++) {
		bool is_first = true;
		for (size_t k = 0; k < i; k++)
			is_first = is_first && exec->lanes[k] != exec->lanes[i];
		if (is_first)
			stream_destroy(exec->lanes[i]);
	}
	task_drop(exec->ended);
	pthread_mutex_unlock(&driver_lock);
	graph_free(exec->graph);
	free(exec->lanes);
	free(exec->tasks);
	free(exec);
	return CUDA_SUCCESS;
}
