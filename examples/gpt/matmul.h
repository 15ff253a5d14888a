/* Matrix products on the CPU, for layers.c. */
#ifndef EXAMPLES_GPT_MATMUL_H
#define EXAMPLES_GPT_MATMUL_H

/* c (rows, cols) += a (rows, inner) * b (inner, cols) */
void matmul_add(float *c, const float *a, const float *b, int rows, int inner, int cols);
/* c (rows, cols) += transposed a (inner, rows) * b (inner, cols) */
void matmul_transposed_add(float *c, const float *a, const float *b, int rows, int inner, int cols);
/* out (cols, rows) = transposed in (rows, cols) */
void transpose(float *out, const float *in, int rows, int cols);

#endif
