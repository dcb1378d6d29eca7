import java.text.*; import java.util.*;
/** Writes java_formats.tsv: java JavaFormats.java (JDK 17). */
public class JavaFormats { public static void main(String[] a) {
 String[] p={"yyyy-MM-dd HH:mm:ss:SSS", "y yy yyy yyyyy", "M MM MMM MMMM L LL LLL LLLL", "d ddd D DDDD E EEE EEEE u uu", "a aaa H k K h HHH kk KK hh", "m mmm s sss S SSSSS", "Z ZZZZ X XX XXX", "'o''clock' HH 'h' '' d", "\u00e9\u4e2d/HH.mm,ss [S]"};
 long[] t={1795177423430L,0L,1735603200001L,951782399999L,1704067199999L,1798761600000L};
 String[] z={"UTC","America/New_York","Asia/Kolkata"};
 for(String zz:z) for(long tt:t) for(String pp:p){ SimpleDateFormat f=new SimpleDateFormat(pp, Locale.ENGLISH); f.setTimeZone(TimeZone.getTimeZone(zz)); System.out.println(zz+"\t"+tt+"\t"+pp+"\t"+f.format(new Date(tt)));}
 double[] d={0.00015,0.00005,1.00005,2.00015,123456.78905,0.12345,1e-9,1e15,1.23456789012E10,98570.72445,71658.90355,1.0/3,2.0/3,1e22,Double.POSITIVE_INFINITY,Double.NaN, 5e-324, 1.7976931348623157E308};
 for(double v:d) System.out.println("F\t"+v+"\t"+String.format(Locale.ENGLISH,"%.4f",v));
}}
