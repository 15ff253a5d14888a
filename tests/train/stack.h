/* A model of equal units, none of them tied, so that what a strategy holds and sends is the
 * formula's number and no approximation of it. */
#ifndef TESTS_TRAIN_STACK_H
#define TESTS_TRAIN_STACK_H

#include <tutti/train.h>

enum { STACK_UNITS = 4, STACK_PARAMS = 2 * STACK_UNITS };

/* Each unit has a weight and a bias of so many elements. Gradients are small integers, or, with salt, fractions drawn
 * from it: with one of its own on each rank the order of additions shows in their sums. */
struct stack {
	size_t weight, bias;
	unsigned salt;
	tutti_dtype grad_dtype; /* the config's; of 16 bits only BF16, without salt */
};

/* Elements of all units, and as they travel: the trainer begins every parameter on 16 elements of
 * its own. */
size_t stack_elements(const struct stack *stack);
size_t stack_padded(const struct stack *stack);

/* NULL where it fails, which is counted as a failed check. */
tutti_model *stack_register(const struct stack *stack);
tutti_trainer *stack_create(const struct stack *stack, tutti_comm *comm,
			    const tutti_train_config *config);
/* A step of AdamW with all hooks, after which nothing is under way. */
void stack_step(tutti_trainer *trainer, const struct stack *stack, int micro_batches);

#endif
