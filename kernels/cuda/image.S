/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image.S - the device code for the driver
 *
 * A table of images, one for each file that nvcc compiled; it ends with an empty
 * entry.  The build writes images.h, the list of these files.  Without nvcc the
 * table is empty: no GPU can be used then, and the tests' stand-in has its own code.
 */
	.macro	IMAGE file
	.section .rodata.image, "a", %progbits
	.balign	64
1:	.incbin	"\file"
	.section .data.rel.ro.images, "aw", %progbits
	.quad	1b
	.endm

	.section .data.rel.ro.images, "aw", %progbits
	.balign	8
	.globl	kern_cuda_images
	.type	kern_cuda_images, %object
kern_cuda_images:
#include "images.h"
	.section .data.rel.ro.images, "aw", %progbits
	.quad	0
	.size	kern_cuda_images, . - kern_cuda_images

	.section .note.GNU-stack, "", %progbits
