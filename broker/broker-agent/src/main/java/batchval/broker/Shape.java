package batchval.broker;

import org.objectweb.asm.ClassReader;
import org.objectweb.asm.Opcodes;
import org.objectweb.asm.tree.AbstractInsnNode;
import org.objectweb.asm.tree.ClassNode;
import org.objectweb.asm.tree.FieldInsnNode;
import org.objectweb.asm.tree.FieldNode;
import org.objectweb.asm.tree.IincInsnNode;
import org.objectweb.asm.tree.IntInsnNode;
import org.objectweb.asm.tree.InvokeDynamicInsnNode;
import org.objectweb.asm.tree.JumpInsnNode;
import org.objectweb.asm.tree.LabelNode;
import org.objectweb.asm.tree.LdcInsnNode;
import org.objectweb.asm.tree.MethodInsnNode;
import org.objectweb.asm.tree.MethodNode;
import org.objectweb.asm.tree.TypeInsnNode;
import org.objectweb.asm.tree.VarInsnNode;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HexFormat;
import java.util.List;
import java.util.function.Function;
import java.util.function.UnaryOperator;

/** What a class must have before it is patched; each question throws where it does not. */
final class Shape {
    final ClassNode node = new ClassNode();

    Shape(byte[] bytes) {
        new ClassReader(bytes).accept(node, 0);
    }

    /** Return the shape of a class. ``bytes`` gives null where there is none. */
    static Shape of(String name, Function<String, byte[]> bytes) throws ShapeMismatch {
        byte[] found = bytes.apply(name);
        if (found == null)
            throw new ShapeMismatch(name, "not found on the class path");
        return new Shape(found).named(name);
    }

    boolean hasField(String name) {
        return node.fields.stream().anyMatch(field -> field.name.equals(name));
    }

    boolean hasMethod(String name, String descriptor) {
        return node.methods.stream()
            .anyMatch(method -> method.name.equals(name) && method.desc.equals(descriptor));
    }

    private ShapeMismatch mismatch(String reason) {
        return new ShapeMismatch(node.name, reason);
    }

    Shape named(String name) throws ShapeMismatch {
        if (!node.name.equals(name))
            throw mismatch("expected the class " + name);
        return this;
    }

    FieldNode field(String name, String descriptor) throws ShapeMismatch {
        for (FieldNode field : node.fields)
            if (field.name.equals(name) && field.desc.equals(descriptor))
                return field;
        throw mismatch("no field " + name + " " + descriptor);
    }

    MethodNode method(String name, String descriptor) throws ShapeMismatch {
        for (MethodNode method : node.methods)
            if (method.name.equals(name) && method.desc.equals(descriptor))
                return method;
        throw mismatch("no method " + name + descriptor);
    }

    MethodNode staticMethod(String name, String descriptor) throws ShapeMismatch {
        MethodNode method = method(name, descriptor);
        if ((method.access & Opcodes.ACC_STATIC) == 0)
            throw mismatch("method " + name + descriptor + " is not static");
        return method;
    }

    /** The instance fields are these names and no others: each may be one more question. */
    void onlyFields(List<String> names) throws ShapeMismatch {
        List<String> found = new ArrayList<>();
        for (FieldNode field : node.fields)
            if ((field.access & Opcodes.ACC_STATIC) == 0)
                found.add(field.name);
        List<String> expected = new ArrayList<>(names);
        Collections.sort(found);
        Collections.sort(expected);
        if (!found.equals(expected))
            throw mismatch("fields are " + found + ", expected " + expected);
    }

    /** Return the calls of a method within another; there are {@code count} of them. */
    List<MethodInsnNode> calls(MethodNode in, List<String> names, int count) throws ShapeMismatch {
        List<MethodInsnNode> found = new ArrayList<>();
        for (AbstractInsnNode i : in.instructions)
            if (i instanceof MethodInsnNode call && names.contains(call.name))
                found.add(call);
        if (found.size() != count)
            throw mismatch(in.name + " has " + found.size() + " calls of " + names + ", expected "
                + count);
        return found;
    }

    /** Return the instructions of a method that return; there is at least one. */
    List<AbstractInsnNode> returns(MethodNode in, int opcode) throws ShapeMismatch {
        List<AbstractInsnNode> found = new ArrayList<>();
        for (AbstractInsnNode i : in.instructions)
            if (i.getOpcode() == opcode)
                found.add(i);
        if (found.isEmpty())
            throw mismatch(in.name + " never returns");
        return found;
    }

    /** The class has none of these names yet. */
    void without(String prefix) throws ShapeMismatch {
        for (MethodNode method : node.methods)
            if (method.name.startsWith(prefix))
                throw mismatch("method " + method.name + " exists");
        for (FieldNode field : node.fields)
            if (field.name.startsWith(prefix))
                throw mismatch("field " + field.name + " exists");
    }

    /**
     * Return a digest of the instructions of these methods, in the class's order. ``spelled``
     * gives names of classes their form for the digest.
     */
    String digest(List<String> names, UnaryOperator<String> spelled) {
        StringBuilder text = new StringBuilder();
        for (MethodNode method : node.methods) {
            if (!names.contains(method.name))
                continue;
            text.append(method.name).append(method.desc).append('\n');
            List<LabelNode> targets = targets(method);
            for (AbstractInsnNode i : method.instructions)
                if (i instanceof JumpInsnNode jump)
                    text.append(i.getOpcode()).append(" to ").append(targets.indexOf(jump.label))
                        .append('\n');
                else if (i.getOpcode() >= 0)
                    text.append(i.getOpcode()).append(' ').append(operands(i)).append('\n');
                else if (i instanceof LabelNode label && targets.contains(label))
                    text.append("label ").append(targets.indexOf(label)).append('\n');
        }
        try {
            byte[] digest = MessageDigest.getInstance("SHA-256")
                .digest(spelled.apply(text.toString()).getBytes(StandardCharsets.UTF_8));
            return HexFormat.of().formatHex(Arrays.copyOf(digest, 8));
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException(e);
        }
    }

    /** Return the labels that jumps go to, in the order of the jumps. */
    private static List<LabelNode> targets(MethodNode method) {
        List<LabelNode> found = new ArrayList<>();
        for (AbstractInsnNode i : method.instructions)
            if (i instanceof JumpInsnNode jump && !found.contains(jump.label))
                found.add(jump.label);
        return found;
    }

    private static String operands(AbstractInsnNode i) {
        if (i instanceof MethodInsnNode call)
            return call.owner + "." + call.name + call.desc;
        if (i instanceof FieldInsnNode field)
            return field.owner + "." + field.name + field.desc;
        if (i instanceof TypeInsnNode type)
            return type.desc;
        if (i instanceof VarInsnNode variable)
            return Integer.toString(variable.var);
        if (i instanceof IntInsnNode number)
            return Integer.toString(number.operand);
        if (i instanceof IincInsnNode step)
            return step.var + " " + step.incr;
        if (i instanceof LdcInsnNode constant)
            return constant.cst.toString();
        if (i instanceof InvokeDynamicInsnNode dynamic)
            return dynamic.name + dynamic.desc + Arrays.toString(dynamic.bsmArgs);
        return "";
    }
}
