/* A toy model: a few units and parameters. Gradients are small integers, so sums are exact, and
 * every division of the samples among ranks gives the same bits. Parameter 0 is tied: the last unit
 * uses it. The last parameter has no elements. */
#ifndef TESTS_TRAIN_TOY_H
#define TESTS_TRAIN_TOY_H

#include <tutti/train.h>

enum { TOY_UNITS = 4, TOY_PARAMS = 8, TOY_MAX = 64 };

/* Where a rank's values lie. Set before toy_register; NULL: float in host memory. */
struct toy_memory {
	void *(*stream)(int unit); /* for tutti_model_unit_stream; or NULL */
	void (*enter)(int unit); /* whose memory or gradients come next; or NULL */
	void *(*alloc)(size_t bytes); /* what the caller owns; NULL: in struct toy */
	/* Adds n numbers to a gradient. */
	void (*add)(void *grad, const float *what, size_t n);
};
extern _Thread_local const struct toy_memory *toy_memory;

struct toy {
	tutti_model *model;
	tutti_trainer *trainer;
	int size, rank;
	int is_extern;                       /* the caller's memory instead of the trainer's     */
	int infinite_batch;                  /* has an infinity in parameter 3's gradient; 0: no */
	float data[TOY_PARAMS][TOY_MAX], grad[TOY_PARAMS][TOY_MAX];
};

/* An AdamW with weight decay. */
extern const tutti_optimizer toy_adamw;

size_t toy_count(int param);
int toy_unit(int param); /* that it is registered in */
/* Registers the model; the caller may add to it before toy_train. */
void toy_register(struct toy *toy, tutti_comm *comm, int is_extern);
/* Makes the trainer, with values drawn from its seed. */
void toy_train(struct toy *toy, tutti_comm *comm, const tutti_train_config *config);
/* Both. */
void toy_make(struct toy *toy, tutti_comm *comm, const tutti_train_config *config);
void toy_destroy(struct toy *toy);

/* What samples [first, last) add to the gradients when unit's backward runs. */
void toy_backward(struct toy *toy, int unit, int first, int last);
/* A micro-batch of the samples [0, samples) of global batch number batch, this rank's share of
 * them, with all hooks in the usual order. */
void toy_micro_batch(struct toy *toy, tutti_pass pass, int batch, int samples);
/* The same, which ends with the first call that fails. */
tutti_status toy_try_micro_batch(struct toy *toy, tutti_pass pass, int batch, int samples);
/* A micro-batch and the update by AdamW; ends with the first call that fails. */
tutti_status toy_step(struct toy *toy, int batch, int samples);
/* All values; those that a parameter does not have are 0. Collective. */
void toy_read(tutti_trainer *trainer, float values[TOY_PARAMS][TOY_MAX]);
/* The same, of which rank 0 keeps the values: for memory that ranks share. */
void toy_keep(const struct toy *toy, float values[TOY_PARAMS][TOY_MAX]);
/* The gradient summed over the samples [0, samples) of that batch. */
double toy_sum(int param, size_t index, int batch, int samples);

#endif
