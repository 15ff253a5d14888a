/* Matrix products on the CPU. */
#include "matmul.h"

/* Where the time goes: compiled for more than one instruction set, chosen when the program starts.
 */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define MULTIVERSIONED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define MULTIVERSIONED
#endif

/* c (cols) += x[0] * b (4, cols) row 0 + ... + x[3] * row 3 */
static inline void add_rows(float *restrict c, const float x[4], const float *restrict b, int cols)
{
	const float *b0 = b, *b1 = b + cols, *b2 = b + 2 * cols, *b3 = b + 3 * cols;

	for (int j = 0; j < cols; j++)
		c[j] += x[0] * b0[j] + x[1] * b1[j] + x[2] * b2[j] + x[3] * b3[j];
}

static inline void matmul_add_row(float *restrict c, float x, const float *restrict b, int cols)
{
	for (int j = 0; j < cols; j++)
		c[j] += x * b[j];
}

MULTIVERSIONED
void matmul_add(float *c, const float *a, const float *b, int rows, int inner, int cols)
{
	for (int r = 0; r < rows; r++) {
		const float *x = a + r * inner;
		int i = 0;
		for (; i + 4 <= inner; i += 4)
			add_rows(c + r * cols, x + i, b + i * cols, cols);
		for (; i < inner; i++)
			matmul_add_row(c + r * cols, x[i], b + i * cols, cols);
	}
}

MULTIVERSIONED
void matmul_transposed_add(float *c, const float *a, const float *b, int rows, int inner, int cols)
{
	int i = 0;

	for (; i + 4 <= inner; i += 4)
		for (int r = 0; r < rows; r++) {
			const float *x = a + i * rows + r;
			const float four[4] = {x[0], x[rows], x[2 * rows], x[3 * rows]};
			add_rows(c + r * cols, four, b + i * cols, cols);
		}
	for (; i < inner; i++)
		for (int r = 0; r < rows; r++)
			matmul_add_row(c + r * cols, a[i * rows + r], b + i * cols, cols);
}

void transpose(float *out, const float *in, int rows, int cols)
{
	for (int r = 0; r < rows; r++)
		for (int c = 0; c < cols; c++)
			out[c * rows + r] = in[r * cols + c];
}
