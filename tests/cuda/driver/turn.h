/* Processes that share a device take turns: while kernels of one run there, those of the others wait,
 * however long. Only where FAKE_CUDA_MACHINE names a file, whose byte n stands for device n. */
#ifndef TESTS_CUDA_TURN_H
#define TESTS_CUDA_TURN_H

/* Once, when the settings are known. */
void turn_open(void);
/* Without the driver's lock. Any number of kernels of one process. */
void turn_take(int gpu);
void turn_give(int gpu);

#endif
