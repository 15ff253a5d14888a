/* A number and its optimizer's state in double precision, straight from the formulas of AdamW and
 * SGD. */
#ifndef TESTS_TRAIN_PLAIN_UPDATE_H
#define TESTS_TRAIN_PLAIN_UPDATE_H

#include <tutti/train.h>

#include <math.h>

struct plain {
	double value, m, v;
};

/* step: updates before this one. */
static inline void plain_update(struct plain *x, double gradient, const tutti_optimizer *o, int step)
{
	if (o->kind == TUTTI_SGD) {
		x->m = (double)o->momentum * x->m + gradient + (double)o->weight_decay * x->value;
		x->value -= (double)o->lr * x->m;
		return;
	}
	x->m = (double)o->beta1 * x->m + (1 - (double)o->beta1) * gradient;
	x->v = (double)o->beta2 * x->v + (1 - (double)o->beta2) * gradient * gradient;
	double mean = x->m / (1 - pow((double)o->beta1, step + 1));
	double square = x->v / (1 - pow((double)o->beta2, step + 1));
	x->value -= (double)o->lr *
		    (mean / (sqrt(square) + (double)o->eps) + (double)o->weight_decay * x->value);
}

#endif
