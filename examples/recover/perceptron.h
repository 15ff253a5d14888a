/* A perceptron with one hidden layer that learns a function of eight numbers, as units of a Tutti
 * trainer. */
#ifndef EXAMPLES_RECOVER_PERCEPTRON_H
#define EXAMPLES_RECOVER_PERCEPTRON_H

#include <tutti/train.h>

/* The caller destroys *model. */
tutti_status perceptron_register(tutti_model **model);
/* The same first values on all ranks, and in every run. */
tutti_status perceptron_init(tutti_trainer *trainer);
/* A micro-batch of samples [first, last) of batch number batch: adds to the gradients unless pass is
 * TUTTI_PASS_EVAL. *loss is the sum over the samples. */
tutti_status perceptron_pass(tutti_trainer *trainer, tutti_pass pass, int64_t batch, int first,
                             int last, double *loss);

#endif
