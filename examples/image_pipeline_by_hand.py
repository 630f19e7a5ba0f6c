"""Sharpen the images of a folder on all GPUs, by hand: for each slot of the ring a thread, a stream and four buffers.

`image_pipeline.py` is the same job in tasks. This program needs CuPy and a GPU.
"""

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cupy as cp
import numpy as np
from cupyx import empty_pinned


def sharpen(image, result):
    """Add to each inner pixel its difference from the mean of its four neighbours."""
    pixels = image.astype(np.float32)
    mean = (pixels[:-2, 1:-1] + pixels[2:, 1:-1] + pixels[1:-1, :-2] + pixels[1:-1, 2:]) / 4
    pixels[1:-1, 1:-1] += pixels[1:-1, 1:-1] - mean
    result[...] = pixels.clip(0, 255).astype(np.uint8)


def work(paths, folder, shape, device):
    """Take images through the buffers of one slot, in a thread of its own."""
    image, result = empty_pinned(shape, np.uint8), empty_pinned(shape, np.uint8)
    with cp.cuda.Device(device), cp.cuda.Stream(non_blocking=True) as stream:
        image_there, result_there = cp.empty(shape, np.uint8), cp.empty(shape, np.uint8)
        for path in paths:
            image[...] = np.load(path)
            image_there.set(image, stream=stream)
            sharpen(image_there, result_there)
            result_there.get(stream=stream, out=result, blocking=False)
            stream.synchronize()  # before the buffers are used again
            np.save(folder / path.name, result)


def pipeline(paths, folder, shape, n_slots=4):
    """Write the sharpened images to a folder, under the same names."""
    n_devices = cp.cuda.runtime.getDeviceCount()
    with ThreadPoolExecutor(n_slots) as pool:
        slots = [pool.submit(work, paths[k::n_slots], folder, shape, k % n_devices) for k in range(n_slots)]
        for slot in slots:
            slot.result()


def main(n_images=8, edge=256):
    images = np.random.default_rng(1).integers(0, 256, (n_images, edge, edge), dtype=np.uint8)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = [folder / f"{number}.npy" for number in range(n_images)]
        for path, image in zip(paths, images, strict=True):
            np.save(path, image)
        (folder / "sharp").mkdir()
        pipeline(paths, folder / "sharp", (edge, edge))

        for path, image in zip(paths, images.astype(int), strict=True):
            around = image[:-2, 1:-1] + image[2:, 1:-1] + image[1:-1, :-2] + image[1:-1, 2:]
            image[1:-1, 1:-1] = (2 * image[1:-1, 1:-1] - around / 4).clip(0, 255)
            assert (np.load(folder / "sharp" / path.name) == image).all()
    print(f"{n_images} images of {edge} x {edge} pixels on {cp.cuda.runtime.getDeviceCount()} GPU(s): sharpened")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
