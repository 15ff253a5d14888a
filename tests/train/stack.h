/* A model of equal units without tied parameters: what a strategy holds and sends is exactly its
 * formula. */
#ifndef TESTS_TRAIN_STACK_H
#define TESTS_TRAIN_STACK_H

#include <tutti/train.h>

enum { STACK_UNITS = 4, STACK_PARAMS = 2 * STACK_UNITS };

/* Each unit has a weight and a bias of so many elements. Gradients are small integers, or, with
 * salt, fractions drawn from it. A salt of its own on each rank makes the order of additions
 * visible in the sums. */
struct stack {
	size_t weight, bias;
	unsigned salt;
	tutti_dtype grad_dtype; /* the config's; of 16 bits only BF16, without salt */
};

/* Elements of all units; padded: with the padding of the trainer, which begins every parameter on
 * 16 elements. */
size_t stack_elements(const struct stack *stack);
size_t stack_padded(const struct stack *stack);

/* NULL on a failure, which counts as a failed check. */
tutti_model *stack_register(const struct stack *stack);
tutti_trainer *stack_create(const struct stack *stack, tutti_comm *comm,
			    const tutti_train_config *config);
/* A step of AdamW with all hooks. Nothing is in flight afterwards. */
void stack_step(tutti_trainer *trainer, const struct stack *stack, int micro_batches);

#endif
